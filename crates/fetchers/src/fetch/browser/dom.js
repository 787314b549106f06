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
  if (root) {
    // What a web component shows is in its shadow root, which `outerHTML` leaves out; here it comes as declarative shadow DOM.
    const shadowOf = Object.getOwnPropertyDescriptor(Element.prototype, "shadowRoot").get;
    const shadows = [];
    const collect = (node) => {
      for (const element of node.querySelectorAll("*")) {
        const shadow = shadowOf.call(element);
        if (shadow) {
          shadows.push(shadow);
          collect(shadow);
        }
      }
    };
    collect(root);
    if (shadows.length > 0 && root.getHTML) {
      const shell = root.cloneNode(false).outerHTML;
      const end = shell.lastIndexOf("</");
      text += shell.slice(0, end) + root.getHTML({ shadowRoots: shadows }) + shell.slice(end);
    } else {
      text += root.outerHTML;
    }
  }
  // A lone surrogate has no UTF-8 form.
  globalThis.fetchwiseText = text.toWellFormed();
  return globalThis.fetchwiseText.length + " " + get("characterSet");
})()
