// A field above a long list: it hides what does not have all of its words, and keeps them in
// the address (`?filter=`). `<div class="list-filter" data-items="SELECTOR" data-what="modules">`
// is its place; `data-try` offers words. In a table `cpu:nothing` looks in the column CPU alone,
// and `-word` wants rows without it. Without script the list is whole.

for (const place of document.querySelectorAll(".list-filter")) {
  const article = place.closest("article") ?? document;
  const { what } = place.dataset;

  const make = (name, more = {}, ...children) => {
    const made = Object.assign(document.createElement(name), more);
    made.append(...children);
    return made;
  };

  const plain = (text) => text.toLowerCase().replace(/\s+/g, " ").trim();

  const items = [...article.querySelectorAll(place.dataset.items)].map((node) => {
    const section = node.closest("section");
    const title = section?.querySelector("h2, h3")?.textContent ?? "";
    const heads = [...(node.closest("table")?.querySelectorAll("thead th") ?? [])];
    const columns = heads.map((head, n) => [plain(head.textContent), plain(node.cells?.[n]?.textContent ?? "")]);
    return { node, section, columns, text: plain(`${title} ${node.textContent}`) };
  });
  const sections = [...new Set(items.map(({ section }) => section))].filter((each) => each?.querySelector(":scope > h2, :scope > h3"));
  const folded = [...new Set(items.flatMap(({ node }) => node.closest("details") ?? []))];
  const open = folded.map((each) => each.open);

  // A full name is found where lists have the short one.
  const short = (word) => word.replace(/^jax\.numpy\./, "jnp.").replace(/^jax\.lax\./, "lax.");

  const has = ({ columns, text }, word) => {
    const [, name, wanted] = /^([^:]+):(.+)$/.exec(word) ?? [];
    const inside = name ? columns.filter(([head]) => head.startsWith(name)) : [];
    return inside.length ? inside.some(([, cell]) => cell.includes(wanted)) : text.includes(word) || text.includes(short(word));
  };
  const fits = (item, words) =>
    words.every((word) => (word.length > 1 && word.startsWith("-") ? !has(item, word.slice(1)) : has(item, word)));

  const id = `filter-${what.replaceAll(" ", "-")}`;
  const box = make("input", { id, type: "search", autocomplete: "off", spellcheck: false });
  const count = make("span", { className: "count" });
  count.setAttribute("role", "status");
  const words = () => plain(box.value).split(" ").filter(Boolean);

  const offers = (place.dataset.try ?? "").split(" ").filter(Boolean).map((word) => {
    const button = make("button", { type: "button", textContent: word });
    button.addEventListener("click", () => {
      const now = words();
      box.value = (now.includes(word) ? now.filter((each) => each !== word) : [...now, word]).join(" ");
      show();
      keep();
    });
    return button;
  });

  const show = () => {
    const wanted = words();
    let left = 0;
    for (const item of items) {
      item.node.hidden = !fits(item, wanted);
      left += !item.node.hidden;
    }
    const shows = ({ node }) => !node.hidden;
    for (const each of sections) {
      each.hidden = wanted.length > 0 && !items.some((item) => each.contains(item.node) && shows(item));
    }
    folded.forEach((each, n) => {
      each.open = wanted.length ? items.some((item) => each.contains(item.node) && shows(item)) : open[n];
    });
    for (const button of offers) button.ariaPressed = String(wanted.includes(button.textContent));
    count.textContent = wanted.length ? `${left} of ${items.length} ${what}` : `${items.length} ${what}`;
  };

  const keep = () => {
    const address = new URL(location.href);
    if (box.value.trim()) address.searchParams.set("filter", box.value.trim());
    else address.searchParams.delete("filter");
    try {
      history.replaceState(history.state, "", address);
    } catch {
      // a browser that keeps the address of a file as it is
    }
  };

  let waiting;
  box.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { show(); keep(); }, 120);
  });

  const line = make("div", { className: "line" }, make("label", { htmlFor: id, textContent: `Filter the ${what}` }), box, count);
  const form = make("form", { onsubmit: (event) => event.preventDefault() }, line);
  if (offers.length) form.append(make("div", { className: "offers" }, "Try ", ...offers));
  place.append(form);
  const read = () => {
    box.value = new URLSearchParams(location.search).get("filter") ?? "";
    show();
  };
  read();
  addEventListener("popstate", read);

  // Links to what stood on this page when it had everything: `#examples.lu.solve` of the list
  // of modules is on the page that the line of `lu` names first. Others may hide: show all.
  const find = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const old = /^(?:module-)?examples\.(\w+)/.exec(name);
    const target = document.getElementById(name) ?? (old && document.getElementById(`module-examples.${old[1]}`));
    const row = place.dataset.moved === undefined ? null : target?.closest(place.dataset.items);
    if (row) location.replace(row.querySelector("a").href + (old ? `#${name}` : ""));
    else if (target?.closest("[hidden]")) {
      box.value = "";
      show();
      keep();
      target.scrollIntoView();
    }
  };
  find();
  addEventListener("hashchange", find);
}
