// Runs in each document before its own scripts. `for (;;) alert()` never gives the browser a chance to stop it; after a few dialogs
// they stop opening, and what is left is a busy loop, which can be stopped.
(() => {
  let left = 20;
  const once = { apply: (native, self, args) => (left-- > 0 ? Reflect.apply(native, self, args) : undefined) };
  for (const name of ["alert", "confirm", "prompt", "print"]) window[name] = new Proxy(window[name], once);
})();
