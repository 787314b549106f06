// Runs in an isolated world: the page's own scripts cannot reach it, nor change the functions it calls. The getters are taken
// from the prototype because `<form name="documentElement">` hides the property of that name on `document` itself.
(() => {
  const get = (name) => Object.getOwnPropertyDescriptor(Document.prototype, name).get.call(document);
  const doctype = get("doctype");
  const root = get("documentElement");
  let text = "";
  if (doctype) {
    text += "<!DOCTYPE " + doctype.name;
    if (doctype.publicId) text += ' PUBLIC "' + doctype.publicId + '"';
    else if (doctype.systemId) text += " SYSTEM";
    if (doctype.systemId) text += ' "' + doctype.systemId + '"';
    text += ">";
  }
  if (root) text += root.outerHTML;
  // A lone surrogate has no UTF-8 form.
  globalThis.fetchwiseText = text.toWellFormed();
  return globalThis.fetchwiseText.length + " " + get("characterSet");
})()
