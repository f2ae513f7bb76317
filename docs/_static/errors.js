// A box above the list of errors: what is pasted into it is compared with the constant words
// of each entry (`data-words`) by what the search has for it (find.js), and the entries that
// do not fit are hidden. An entry is its message, which opens to cause and cure; find-in-page
// opens it, too. Without script the list is whole, and all of it is open.

{
  const VARIES = /0x[\da-f]+|(?:\/[\w.-]+){2,}|[\w.-]+\.py\b|\d[\d.,]*|\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|'[^']*'/g;
  const KIND = /(?:[\w.]+\.)?(\w*(?:Error|Exception|Warning)): +(.*)/;

  const make = (name, more = {}, ...children) => {
    const made = Object.assign(document.createElement(name), more);
    made.append(...children);
    return made;
  };

  // The words for a search: the last line that names an error, without what varies.
  const searched = (text) => {
    const lines = finder.quiet(text).map((line) => line.trim()).filter(Boolean);
    const last = lines.findLast((line) => KIND.test(line)) ?? lines.at(-1) ?? "";
    const words = (KIND.exec(last)?.[2] ?? last).replace(VARIES, " ").replace(/[^\w\s'-]/g, " ");
    return words.split(/\s+/).filter((word) => word.length > 1).slice(0, 12).join(" ");
  };

  const place = document.querySelector(".error-search");
  const entries = [...document.querySelectorAll(".error-entry")].map((node) => ({
    node,
    id: node.id,
    patterns: JSON.parse(node.dataset.words).map(finder.pattern),
    open: () => {},
  }));
  for (const each of entries) {
    if (!each.id) continue; // a module's error is one line
    const [message, ...rest] = each.node.children;
    const body = make("div", { id: `${each.id}-body` }, ...rest);
    const button = make("button", { type: "button", className: "opens" }, ...message.childNodes);
    button.setAttribute("aria-controls", body.id);
    each.open = (is = true) => {
      if (is) body.removeAttribute("hidden");
      else body.setAttribute("hidden", "until-found");
      button.setAttribute("aria-expanded", is);
    };
    button.addEventListener("click", () => each.open(body.hasAttribute("hidden")));
    body.addEventListener("beforematch", () => each.open());
    message.append(button);
    each.node.append(body);
    each.open(false);
  }
  const sections = new Set(entries.map(({ node }) => node.closest("section")));
  const folded = document.querySelector(".own-errors");

  const box = make("textarea", { id: "error-paste", rows: 5, spellcheck: false, placeholder: "ValueError: …" });
  const clear = make("button", { type: "button", textContent: "Show all", hidden: true });
  const answer = make("p", { className: "answer" });
  answer.setAttribute("role", "status");

  const link = ({ node, id }) => {
    const words = node.querySelector("code").textContent;
    return id ? make("a", { href: `#${id}` }, make("code", {}, words)) : make("code", {}, words);
  };

  const search = () => {
    const words = searched(box.value);
    const address = document.querySelector(".error-search").dataset.search;
    const found = make("a", { href: `${address}?q=${encodeURIComponent(words)}` }, "Search the book");
    return ["No entry has these words. ", found, ` for “${words}”, or paste the last lines, from the name of the error on.`];
  };

  const show = () => {
    const text = finder.plain(box.value);
    const fits = text ? entries.filter(({ patterns }) => finder.fits(text, patterns)) : [];
    const filtered = fits.length > 0;
    for (const each of entries) {
      each.node.hidden = filtered && !fits.includes(each);
      if (filtered) each.open(fits.includes(each));
    }
    for (const section of sections) section.hidden = filtered && ![...section.querySelectorAll(".error-entry")].some((node) => !node.hidden);
    for (const title of folded?.querySelectorAll(".rubric") ?? []) {
      let next = title.nextElementSibling;
      let empty = filtered;
      for (; next?.matches(".error-entry"); next = next.nextElementSibling) empty &&= next.hidden;
      title.hidden = empty;
    }
    if (folded) folded.open = filtered && fits.some(({ node }) => folded.contains(node));
    clear.hidden = !text;
    if (!text) answer.replaceChildren();
    else if (!filtered) answer.replaceChildren(...search());
    else {
      const links = fits.flatMap((each, n) => (n ? [", ", link(each)] : [link(each)]));
      const start = fits.length > 1 ? `${fits.length} of ${entries.length} entries: ` : `1 of ${entries.length} entries: `;
      answer.replaceChildren(start, ...links);
    }
  };

  let waiting;
  box.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(show, 150);
  });
  clear.addEventListener("click", () => {
    box.value = "";
    show();
    box.focus();
  });
  // A link to an entry opens it; one of this page to an entry that is hidden shows all again.
  const arrive = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    entries.find(({ node }) => node === target)?.open();
    if (target?.closest("[hidden]")) {
      box.value = "";
      show();
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", arrive);

  const label = make("label", { htmlFor: box.id }, "Paste a message, with its traceback if you like; it stays in your browser.");
  place?.append(make("form", { onsubmit: (event) => event.preventDefault() }, label, box, make("div", { className: "told" }, answer, clear)));
  show();
  arrive();
}
