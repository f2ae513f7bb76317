// Fields above long lists: they hide what does not fit. Without script a list is whole.
//
// `<div class="list-filter" data-items="SELECTOR" data-what="modules">` is the place of a field
// for words, as `data-try` shows; its address has them (`?filter=`). In a table
// `cpu:nothing` looks in the column CPU alone, and `-word` wants rows without it. With
// `data-paste="LABEL"` the field is for an error, and leaves the entries whose constant words
// stand in it, as the search does.

const filters = {};

filters.plain = text => text.toLowerCase().replace(/\s+/g, " ").trim();

// What tells whether an item has all words.
filters.byWords = node => {
  const title = node.closest("section")?.querySelector("h2, h3")?.textContent ?? "";
  const heads = [...(node.closest("table")?.querySelectorAll("thead th") ?? [])];
  const columns = heads.map((head, n) =>
    [head, node.cells[n]].map(cell => filters.plain(cell.textContent)));
  const text = filters.plain(`${title} ${node.textContent}`);
  const fits = word => {
    if (/^-./.test(word)) return !fits(word.slice(1));
    const [, name, wanted] = /^([^:]+):(.+)$/.exec(word) ?? [];
    const inside = columns.filter(([head]) => name && head.startsWith(name));
    if (inside.length) return inside.some(([, cell]) => cell.includes(wanted));
    const short = word.replace(/^jax\.numpy\./, "jnp.").replace(/^jax\.lax\./, "lax."); // as lists do
    return text.includes(word) || text.includes(short);
  };
  return words => filters.plain(words).split(" ").every(fits);
};

// What tells whether an entry has constant words that stand in a text.
filters.byError = node => {
  const entry = node.querySelector("details");
  const own = node.querySelector("code").textContent.replace(/^\w+: /, ""); // of a module
  const words = entry ? JSON.parse(entry.dataset.words) : [own.replace(/\d[\d.,]*|'[^']*'/g, "...")];
  const patterns = words.filter(each => each.length > 6).map(finder.pattern);
  return text => finder.fit(finder.plain(text), patterns) > 0;
};

filters.add = place => {
  const { items, what, try: placeholder = "", paste } = place.dataset;
  const nodes = [...place.closest("article").querySelectorAll(items)];
  const fits = nodes.map(paste ? filters.byError : filters.byWords);
  const sections = nodes.map(node => node.closest("section:has(> h2, > h3)"));
  const folds = nodes.map(node => node.querySelector("details") ?? node.closest("details"));
  const holders = new Set([...sections, ...folds].filter(Boolean));

  const box = paste ? element("textarea", { rows: 5, placeholder: "ValueError: \u2026" })
    : element("input", { type: "search", autocomplete: "off", placeholder }); // of player.js
  Object.assign(box, { id: `filter-${what}`, spellcheck: false });
  const label = element("label", { htmlFor: box.id }, paste ?? `Filter the ${what}`);
  const count = element("span", { className: "count", role: "status" });
  const clear = element("button", { type: "button", onclick: () => set("") }, "Show all");
  const onsubmit = event => event.preventDefault();
  place.append(element("form", { onsubmit }, label, box, count, clear));

  const show = () => {
    const text = box.value.trim();
    nodes.forEach((node, n) => { node.hidden = text && !fits[n](text); });
    const shown = nodes.filter(node => !node.hidden);
    for (const holder of holders) {
      const holds = shown.some(node => holder.contains(node) || node.contains(holder));
      if (holder.matches("details")) holder.open = text && holds;
      else holder.hidden = !holds;
    }
    count.textContent = `${text && `${shown.length} of `}${nodes.length} ${what}`;
    const href = `${finder.root}search.html?${new URLSearchParams({ q: finder.message(text).slice(0, 1500) })}`;
    if (!shown.length) count.append(": ", element("a", { href }, "search the book"));
    clear.hidden = !text;
    if (!paste) finder.setAddress("filter", text); // an error stays in the browser
  };
  const set = text => { box.value = text; show(); };

  // A link may lead to what is hidden or folded.
  const arrive = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target?.closest("[hidden]")) set("");
    target?.closest(".error-entry")?.querySelector("details").toggleAttribute("open", true);
    target?.scrollIntoView();
  };

  set(new URLSearchParams(location.search).get("filter") ?? "");
  arrive();
  box.addEventListener("input", finder.delay(show));
  addEventListener("hashchange", arrive);
};

document.querySelectorAll(".list-filter").forEach(filters.add);
