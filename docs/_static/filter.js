// Fields above long lists: they hide what does not fit. Without script a list is whole.

const filters = {};

// Show the fitting nodes, the sections that hold one, and open what folds them; null shows all.
filters.show = (nodes, fitting) => {
  for (const node of nodes) node.hidden = fitting !== null && !fitting.includes(node);
  const sections = nodes.map(node => node.closest("section:has(> h2, > h3)"));
  const folds = nodes.map(node => node.querySelector("details") ?? node.closest("details"));
  for (const place of new Set([...sections, ...folds].filter(Boolean))) {
    const holds = fitting?.some(node => place.contains(node) || node.contains(place));
    place.wasOpen ??= place.open;
    if (place.matches("details")) place.open = holds ?? place.wasOpen;
    else place.hidden = holds === false;
  }
};

filters.target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));

// A form with a field: what fits is shown as one types, and all where a link leads to what is hidden.
filters.addField = (place, words, box, show, ...others) => {
  const label = element("label", { htmlFor: box.id }, words); // of player.js
  const onsubmit = event => event.preventDefault();
  place.append(element("form", { onsubmit }, label, box, ...others));
  box.addEventListener("input", finder.delay(show));
  const arrive = () => {
    const target = filters.target();
    if (target?.closest("[hidden]")) {
      box.value = "";
      show();
      target.scrollIntoView();
    }
    target?.closest(".error-entry")?.querySelector("details").toggleAttribute("open", true);
  };
  show();
  arrive();
  addEventListener("hashchange", arrive);
};

// `<div class="list-filter" data-items="SELECTOR" data-what="modules">` is the place of a field
// for words; its address has them (`?filter=`), and `data-try` offers some. In a table
// `cpu:nothing` looks in the column CPU alone, and `-word` wants rows without it.

filters.plain = text => text.toLowerCase().replace(/\s+/g, " ").trim();

filters.item = node => {
  const title = node.closest("section")?.querySelector("h2, h3")?.textContent ?? "";
  const heads = [...(node.closest("table")?.querySelectorAll("thead th") ?? [])];
  const columns = heads.map((head, n) =>
    [head, node.cells[n]].map(cell => filters.plain(cell.textContent)));
  return { node, columns, text: filters.plain(`${title} ${node.textContent}`) };
};

filters.fits = ({ columns, text }, word) => {
  if (/^-./.test(word)) return !filters.fits({ columns, text }, word.slice(1));
  const [, name, wanted] = /^([^:]+):(.+)$/.exec(word) ?? [];
  const inside = columns.filter(([head]) => name && head.startsWith(name));
  if (inside.length) return inside.some(([, cell]) => cell.includes(wanted));
  const short = word.replace(/^jax\.numpy\./, "jnp.").replace(/^jax\.lax\./, "lax."); // as lists do
  return text.includes(word) || text.includes(short);
};

filters.addToList = place => {
  const { items: selector, what, try: offered = "" } = place.dataset;
  const items = [...place.closest("article").querySelectorAll(selector)].map(filters.item);
  const nodes = items.map(item => item.node);
  const box = element("input", {
    id: `filter-${what}`, type: "search", autocomplete: "off", spellcheck: false,
  });
  const count = element("span", { className: "count", role: "status" });
  const words = () => filters.plain(box.value).split(" ").filter(Boolean);
  const buttons = offered.split(" ").filter(Boolean).map(word => {
    const onclick = () => {
      const wanted = new Set(words());
      if (!wanted.delete(word)) wanted.add(word);
      box.value = [...wanted].join(" ");
      show();
    };
    return element("button", { type: "button", onclick }, word);
  });
  const offers = element("div", { className: "offers", hidden: !offered }, "Try ", ...buttons);

  const show = () => {
    const wanted = words();
    const fitting = items.filter(item => wanted.every(word => filters.fits(item, word)));
    filters.show(nodes, wanted.length ? fitting.map(item => item.node) : null);
    for (const button of buttons) button.ariaPressed = String(wanted.includes(button.textContent));
    count.textContent = `${wanted.length ? `${fitting.length} of ` : ""}${items.length} ${what}`;
    finder.setAddress("filter", box.value);
  };
  const read = () => { box.value = new URLSearchParams(location.search).get("filter") ?? ""; };

  read();
  filters.addField(place, `Filter the ${what}`, box, show, count, offers);
  filters.followMoved(place);
  addEventListener("popstate", () => { read(); show(); });
};

// Links to what stood on the list of modules when it had everything, as `#examples.lu.solve`,
// lead on to the page of the module.
filters.followMoved = place => {
  const row = place.dataset.moved !== undefined && filters.target()?.closest(place.dataset.items);
  if (row) location.replace(row.querySelector("a").href + location.hash);
};

// On the page of errors the field takes a pasted one, and leaves the entries whose constant words
// stand in it, as the search does.

filters.errorPatterns = node => {
  const entry = node.querySelector("details");
  if (entry) return JSON.parse(entry.dataset.words).map(finder.pattern);
  const own = node.querySelector("code").textContent.replace(/^\w+: /, ""); // of a module
  const words = own.replace(/\d[\d.,]*|'[^']*'/g, "...");
  return words.length > 6 ? [finder.pattern(words)] : [];
};

filters.addToErrors = place => {
  const nodes = [...document.querySelectorAll(".error-entry, .own-errors li")];
  const patterns = new Map(nodes.map(node => [node, filters.errorPatterns(node)]));
  const box = element("textarea", {
    id: "error-paste", rows: 5, spellcheck: false, placeholder: "ValueError: \u2026",
  });
  const answer = element("p", { className: "answer", role: "status" });
  const onclick = () => { box.value = ""; show(); };
  const clear = element("button", { type: "button", onclick }, "Show all");
  const line = element("div", { className: "line" }, answer, clear);

  const show = () => {
    const text = finder.plain(box.value);
    const fitting = text ? nodes.filter(node => finder.fit(text, patterns.get(node))) : [];
    filters.show(nodes, fitting.length ? fitting : null);
    clear.hidden = !text;
    const query = new URLSearchParams({ q: finder.message(box.value).slice(0, 1500) });
    const href = `${place.dataset.search}?${query}`;
    if (!text) answer.replaceChildren();
    else if (fitting.length) answer.textContent = `${fitting.length} of ${nodes.length} entries.`;
    else answer.replaceChildren("No entry has these words. ",
      element("a", { href }, "Search the book"), ", or paste the last lines alone.");
  };
  const words = "Paste a message, with its traceback if you like; it stays in your browser.";
  filters.addField(place, words, box, show, line);
};

document.querySelectorAll(".list-filter").forEach(filters.addToList);
document.querySelectorAll(".error-search").forEach(filters.addToErrors);
