// The search: _ext/search_index.py writes its data. That and MiniSearch are loaded at the
// first search, as scripts, so that it works on pages opened as files, too.
const finder = { first: 15, near: 60, wide: 240 };

// --------------------------------------------------------------------------- words

finder.stem = word => {
  let stem = word.replace(/(ss|us|is)$|ies$|s$/, (end, kept) => kept ?? (end === "ies" ? "y" : ""));
  const shorter = stem.replace(/(ing|ed|e)$/, "");
  if (shorter.length > 2) stem = shorter.replace(/([bdgmnprt])\1$/, "$1");
  return stem;
};

finder.names = text => text.match(/[\p{L}\p{N}_]+(?:-[\p{L}\p{N}_]+)*/gu) ?? [];

// `all_gather`, `AllGather` and all-gather have the parts all, gather; numbers are none.
finder.parts = name => name.replace(/([a-z\d])(?=[A-Z])/g, "$1_").toLowerCase().split(/[_-]+/)
  .filter(part => /\p{L}/u.test(part)).map(finder.stem);

finder.terms = name => {
  const parts = finder.parts(name);
  return parts.length > 1 ? [parts.join(""), ...parts] : parts;
};

// The first of them is the whole name: a sequence of these has what `whole` has in one piece.
finder.whole = text => finder.names(text).map(name => finder.terms(name)[0]).filter(Boolean);
finder.holds = (sequence, piece, begun = false) => sequence.some((_, n) => piece.every((part, m) =>
  begun && m === piece.length - 1 ? sequence[n + m]?.startsWith(part) : sequence[n + m] === part));

// Words that follow each other tell a message from others that have the same words.
finder.pairs = parts => parts.slice(1).map((part, n) => `${parts[n]} ${part}`);

// A query that is one name of an API, perhaps called: as it was written, and its parts
// without `jax.` before them. What names an error is none: messages explain those.
finder.roots = ["jax", "lax", "jnp", "np", "numpy"];
finder.rooted = new RegExp(`\\b(?:(?:${finder.roots.join("|")})\\.)+(?=\\w{2})`, "g");
finder.asked = text => {
  const written = /^\s*@?([\p{L}_][\p{L}\p{N}_.]*?)\.?(?:\(.*)?\s*$/u.exec(text)?.[1];
  if (!written || /(?:Error|Exception|Warning)$/i.test(written)) return null;
  const all = written.replace(/\.py$/, "").split(".").filter(Boolean); // a module by its file
  const parts = all.slice(all.findIndex(part => !finder.roots.includes(part.toLowerCase())));
  return { written, parts: parts.join("").length > 1 ? parts : all }; // of `jax.P` both tell more
};

// ------------------------------------------------------------- the words of a message

// Which constant words stand in a text, as `matches` in src/book/error_index.py says:
// for the search, and for the box of the page of errors.
finder.gap = 400; // characters that `...` may stand for
finder.noise = /^\s*(?:\[[a-z ]*\d+\]:?|E(?= )|[>!|])\s*/; // before lines, from test runners and launchers
finder.quiet = text => text.split("\n").map(line => line.replace(finder.noise, ""));
finder.plain = text => finder.quiet(text).join(" ").replaceAll("`", "").replace(/\s+/g, " ").trim();
finder.escaped = text => text.replace(/\s+/g, " ").trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
finder.pattern = words =>
  new RegExp(words.replaceAll("`", "").split("...").map(finder.escaped).join(`.{0,${finder.gap}}?`), "i");

// How much of a plain text such words are: the most that one of the patterns has, or 0.
finder.fits = (plain, patterns) => Math.max(0, ...patterns.map(pattern => pattern.test(plain) && pattern.source.length));

// -------------------------------------------------------------------- a pasted error

finder.raised = /(?:^|[\s.])\w*(?:Error|Exception|Warning|Exit)\b.{0,2}:/;
finder.frame = /^\W*(?:File "|Traceback|During handling of|The above exception|The stack trace below)|^[\s^~-]*$/;
finder.own = [ // what it holds of its own case: addresses, places, times, shapes
  /https?:\/\/\S+/g,
  /\bFile "[^"]*", line \d+(?:, in \S+)?/g,
  /(?:[\w.~-]*\/)+[\w.+-]*(?::\d+)*\]?/g,
  /\b[\w-]+\.(?:py|cc|cpp|h|so)\b(?::\d+)*\]?/g,
  /\b[a-z]+\d*(?:<\w+>)?\[[\d,\s@\w]*\](?:\{[^}]*\})?/g,
  /<[^<>]* at 0x\w+>/g,
  /(?<=\b[A-Z]\w+)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)/g, // Mesh(...)
  /\b0x[\da-f]+\b|\b[\da-f]{8,}\b/gi,
];

// Of a traceback: its messages, each with the lines below, and not the frames.
finder.message = text => {
  const lines = finder.quiet(text);
  const said = lines.filter((line, n) =>
    !finder.frame.test(line) && !(/^\W*File "/.test(lines[n - 1] ?? "") && /^\s/.test(line)));
  const first = said.findIndex(line => finder.raised.test(line));
  return (lines.length > 3 && first >= 0 ? said.slice(first) : said).join(" ");
};

finder.told = text => {
  const cleaned = finder.own.reduce((rest, own) => rest.replace(own, " "), finder.message(text));
  const names = finder.names(cleaned);
  return names.length > 5 ? names.slice(0, 250) : finder.names(text.replace(finder.rooted, ""));
};

// --------------------------------------------------------------------------- ranking

finder.options = {
  fields: ["page", "title", "text", "code"],
  tokenize: finder.names,
  processTerm: finder.terms,
  searchOptions: {
    boost: { page: 1, title: 2, text: 1, code: 0.5 },
    tokenize: text => text.split(" "),
    processTerm: term => term,
  },
};

finder.build = ({ pages, sections }) => {
  finder.sections = sections.map(([of, anchor, title, text, code, words = [], said = 0], id) => {
    const [url, page, place, most] = pages[of];
    const head = id === 0 || sections[id - 1][0] !== of;
    const href = head ? url : `${url}#${anchor}`;
    const patterns = words.map(finder.pattern);
    return { id, url, page, place, most, href, title: head ? "" : title, text, code, patterns, said };
  });
  finder.index = new MiniSearch(finder.options);
  return finder.index.addAllAsync(finder.sections, { chunkSize: 40 });
};

// MiniSearch scores by the words that a section has (BM25); of its sum we take the mean,
// times the share of the query, by weight, that is there, and more for pairs of words.
finder.search = (text, typing = false) => {
  const asked = finder.asked(text);
  const names = asked?.parts ?? finder.told(text);
  const words = [...new Set(names.flatMap(finder.terms))];
  if (!words.length) return [];
  const few = words.length < 6;
  const prefix = term => typing && few && term === words.at(-1) && term.length > 1;
  let found = finder.index.search(words.join(" "), { prefix });
  const lacks = new Set(words);
  for (const { queryTerms } of found) for (const term of queryTerms) lacks.delete(term);
  if (few && lacks.size) { // perhaps misspelt
    const fuzzy = term => lacks.has(term) && term.length > 3 ? 0.25 : false;
    found = finder.index.search(words.join(" "), { prefix, fuzzy });
  }
  const counts = new Map();
  for (const { queryTerms } of found) {
    for (const term of new Set(queryTerms)) counts.set(term, (counts.get(term) ?? 0) + 1);
  }
  const weight = term => {
    const count = counts.get(term);
    return count ? Math.log(1 + (finder.sections.length - count + 0.5) / (count + 0.5)) : 0;
  };
  const sum = terms => terms.reduce((total, term) => total + weight(term), 0);
  const all = sum(words);
  for (const each of found) {
    each.share = sum([...new Set(each.queryTerms)]) / all;
    each.score *= each.share / each.terms.length;
  }
  if (asked) finder.named(found, asked, typing);
  const best = found.sort((a, b) => b.score - a.score).slice(0, finder.near);
  const parts = names.flatMap(finder.parts).filter(part => counts.has(part));
  const pairs = [...new Set(finder.pairs(parts))];
  const pairsAll = sum(pairs.flatMap(pair => pair.split(" "))) || 1;
  for (const each of best) {
    const section = finder.sections[each.id];
    section.pairs ??= new Set(finder.pairs(finder.names(`${section.title} ${section.text}`).flatMap(finder.parts)));
    const there = pairs.filter(pair => section.pairs.has(pair)).flatMap(pair => pair.split(" "));
    each.score *= 1 + 2 * sum(there) / pairsAll;
  }
  return finder.arranged(best.sort((a, b) => b.score - a.score), weight, finder.known(text, words));
};

// A name: a page that is called so, headings that hold it, and texts that do come before
// what has its parts; messages and old code after the rest, since they only mention it.
// What explains a name has it where a heading or the text begins; `Name(field=` is a print.
finder.named = (found, { written, parts }, typing) => {
  const name = parts.flatMap(finder.whole);
  const end = typing ? "" : "(?!\\w)";
  const short = finder.escaped(parts.join("."));
  const start = `(?:^|: )(?:\\w+\\.)*${short}${end}`; // of a heading, or of its second half
  const literal = new RegExp(`(?<!\\w)${short}${end}`, "i");
  const signs = [
    [1, literal],
    [1, new RegExp(start, "i")],
    [2, new RegExp(`${start}(?=[:,]|$)`, "i")],
    [2, new RegExp(`(?<!\\w)${finder.escaped(written)}${end}`, "i")],
  ];
  const full = signs.at(-1)[1];
  for (const each of found) {
    const section = finder.sections[each.id];
    const { url, page, title, text, place, patterns } = section;
    const heading = title || page;
    section.heading ??= finder.whole(heading);
    section.told ??= finder.whole(text.replace(/\b[A-Z]\w*\(\w+=/g, " "));
    const called = !title && finder.holds(finder.whole(url.replace(/^.*\/|\.html$/g, "")), name);
    const headed = !patterns.length && finder.holds(section.heading, name, typing);
    const told = finder.holds(section.told, name, typing);
    const last = told && section.heading.includes(name.at(-1)) ? 0.25 : 0;
    const step = (called ? 3 : headed ? 2 : told ? 1 + last : each.queryTerms.includes(name.at(-1)) ? 0 : -2) - (place ? headed ? 0.5 : 1.5 : 0);
    const early = 1 + 1 / (1 + (literal.exec(text)?.index ?? 1e3) / 100);
    const often = headed ? 1 + name.length / section.heading.length : 1;
    const exact = headed ? signs.reduce((sum, [more, sign]) => sum + more * sign.test(heading), 1) : 1;
    each.score = 1e6 * step + each.score * early * often * exact * (full.test(text) ? 2 : 1);
  }
};

// The entries of the page of errors whose words stand in the text, the longest first.
finder.known = (text, words) => {
  const plain = finder.plain(text);
  return finder.sections.map(({ id, patterns }) => ({ id, fits: finder.fits(plain, patterns) }))
    .filter(each => each.fits).sort((a, b) => b.fits - a.fits).slice(0, 3)
    .map(each => ({ ...each, share: 1, terms: words }));
};

// A page has at most two sections among them; what the text is comes first, lists of
// everything come last.
finder.arranged = (best, weight, known) => {
  const counts = {};
  const few = best.map(each => ({ ...each, ...finder.sections[each.id] }))
    .filter(({ url, most }) => (counts[url] = (counts[url] ?? 0) + 1) <= most)
    .filter(({ id }) => !known.some(each => each.id === id));
  const results = [
    ...known.map(each => ({ ...each, ...finder.sections[each.id] })),
    ...few.filter(each => each.place < 2),
    ...few.filter(each => each.place === 2),
  ];
  return results.slice(0, finder.first).map(each => ({
    ...each,
    weights: new Map(each.terms.map(term => [term, weight(term) || 1])),
  }));
};

// -------------------------------------------------------------------------- excerpts

// Pieces of a text, `[words, found]`; what is in nearly every section is not marked.
finder.marked = (text, weights) => {
  const told = Math.max(...weights.values()) / 4;
  const pieces = [];
  let end = 0;
  for (const { 0: name, index } of text.matchAll(/[\p{L}\p{N}_]+(?:-[\p{L}\p{N}_]+)*/gu)) {
    const best = Math.max(0, ...finder.terms(name).map(term => weights.get(term) ?? 0));
    if (best < told || !best) continue;
    if (index > end) pieces.push([text.slice(end, index), 0]);
    pieces.push([name, best]);
    end = index + name.length;
  }
  return [...pieces, [text.slice(end), 0]];
};

// The part of a section in which most of what was found stands together. Of code the index
// has words alone; they are named where they tell more.
finder.excerpt = ({ title, text, code, weights, fits, said }) => {
  if (fits) return [[text.slice(text.startsWith(title) ? title.length : 0, said).trim(), 0]]; // the cause and the cure
  const [inText, inCode] = [text, code].map(words => finder.marked(words, weights));
  const most = pieces => Math.max(...pieces.map(piece => piece[1]));
  const part = finder.part(inText);
  if (most(inCode) <= most(inText)) return part;
  const names = inCode.filter(piece => piece[1]).slice(0, 5);
  return [["In its code: ", 0], ...names.flatMap((name, n) => n ? [[", ", 0], name] : [name]), [". ", 0], ...part];
};

finder.part = pieces => {
  let place = 0;
  const hits = pieces.map(([words, weight]) => {
    place += words.length;
    return { words, weight, start: place - words.length, end: place };
  }).filter(hit => hit.weight);
  let [best, from, to] = [-1, 0, 0];
  hits.forEach((hit, n) => {
    const inside = hits.slice(n).filter(({ end }) => end - hit.start < finder.wide * 0.75);
    const weights = new Map(inside.map(({ words, weight }) => [words.toLowerCase(), weight]));
    const sum = [...weights.values()].reduce((a, b) => a + b, 0);
    if (sum > best) [best, from, to] = [sum, hit.start, inside.at(-1).end];
  });
  const text = pieces.map(piece => piece[0]).join("");
  const spare = Math.max(0, finder.wide - (to - from));
  let first = Math.max(0, from - Math.round(spare / 3));
  if (first) first = text.indexOf(" ", first - 1) + 1;
  let last = Math.min(text.length, first + finder.wide);
  if (last < text.length) last = Math.max(text.lastIndexOf(" ", last), to);
  const part = [];
  place = 0;
  for (const [words, weight] of pieces) {
    const piece = words.slice(Math.max(0, first - place), Math.max(0, last - place));
    if (piece) part.push([piece, weight]);
    place += words.length;
  }
  return [[first ? "\u2026 " : "", 0], ...part, [last < text.length ? " \u2026" : "", 0]];
};

// -------------------------------------------------------------------------- the page

finder.root = document.documentElement.dataset.content_root ?? "./";
finder.script = file => new Promise((resolve, reject) => {
  const script = document.createElement("script");
  script.src = finder.root + file;
  script.onload = resolve;
  script.onerror = () => reject(new Error(`${file} could not be loaded`));
  document.head.append(script);
});

finder.load = () => finder.ready ??= Promise.all(
  ["_static/vendor/minisearch.js", "find-index.js"].map(finder.script),
).then(() => finder.build(finder.data));

finder.element = (name, pieces, link) => {
  const node = document.createElement(name);
  if (link) node.href = link;
  for (const [words, found] of pieces) {
    if (!found) { node.append(words); continue; }
    const mark = document.createElement("mark");
    mark.textContent = words;
    node.append(mark);
  }
  return node;
};

finder.entry = result => {
  const entry = document.createElement("li");
  const where = [[result.page, 0]];
  if (result.title) where.push([" \u203a ", 0], ...finder.marked(result.title, result.weights));
  entry.append(
    finder.element("a", where, finder.root + result.href),
    finder.element("p", finder.excerpt(result)),
  );
  return entry;
};

finder.said = results => {
  if (!results.length) return "Nothing in this book has these words.";
  const count = results.length === 1 ? "One section" : `${results.length} sections`;
  return results[0].share < 0.4 ? `No section says all of this. The nearest ${results.length}:` : `${count}, the best first.`;
};

finder.show = async (field, typing) => {
  const [status, list] = ["#find-status", "#find-results"].map(id => document.querySelector(id));
  const text = field.value;
  if (text.trim() && !finder.index) status.textContent = "The index is being read.";
  try {
    await finder.load();
  } catch (error) {
    status.textContent = `The search does not work: ${error.message}.`;
    return;
  }
  if (text !== field.value) return; // a later one will follow
  const results = finder.search(text, typing);
  status.textContent = text.trim() ? finder.said(results) : "";
  list.replaceChildren(...results.map(finder.entry));
};

// The page of results: it answers while one types, and its address holds the question.
finder.answer = field => {
  let timer;
  const grow = () => {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  const address = () => {
    const long = field.value.length > 2000; // then it keeps the message, and no frames
    const query = new URLSearchParams({ q: (long ? finder.message(field.value) : field.value).slice(0, 2000) });
    try {
      history.replaceState(null, "", field.value.trim() ? `?${query}` : location.pathname);
    } catch { /* some browsers refuse it to a file */ }
  };
  const ask = typing => {
    clearTimeout(timer);
    grow();
    timer = setTimeout(() => { address(); finder.show(field, typing); }, typing ? 150 : 0);
  };
  field.addEventListener("input", () => ask(true));
  field.addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      ask(false);
    }
  });
  field.form.addEventListener("submit", event => { event.preventDefault(); ask(false); });
  field.value ||= new URLSearchParams(location.search).get("q") ?? ""; // somebody may have begun to type
  finderKeys.show();
  if (field.value) ask(false);
};

// On a page that shows no field, the keys open one above it.
finderKeys.box = () => {
  finder.opened ??= finder.box();
  if (!finder.opened.open) finder.opened.showModal();
  return finder.opened.querySelector("input");
};

finder.box = () => {
  const form = Object.assign(document.createElement("form"), { className: "find", action: `${finder.root}search.html` });
  const field = Object.assign(document.createElement("input"), { type: "search", name: "q", className: "form-control" });
  const box = Object.assign(document.createElement("dialog"), { className: "find-box" });
  form.role = "search";
  box.ariaLabel = field.ariaLabel = field.placeholder = "Search, or paste an error";
  field.autocomplete = field.autocapitalize = "off";
  field.spellcheck = false;
  form.append(field);
  form.addEventListener("submit", () => box.close()); // who comes back finds it closed
  box.addEventListener("click", event => event.target === box && box.close());
  box.addEventListener("keydown", event => event.key === "Escape" && box.close()); // else it empties the field first
  box.append(form);
  document.body.append(box);
  finder.line(field);
  return box;
};

finder.line = field => {
  field.addEventListener("focus", () => finder.load().catch(() => {}));
  field.addEventListener("paste", finder.paste);
};

// A field of one line would run the lines of a pasted error together.
finder.paste = event => {
  const text = event.clipboardData?.getData("text") ?? "";
  if (!text.trim().includes("\n")) return;
  event.preventDefault();
  const field = event.target;
  const words = finder.message(text).replace(/\s+/g, " ").trim().slice(0, 1500);
  field.setRangeText(words, field.selectionStart, field.selectionEnd, "end");
};

// This script is deferred: the page has been read.
document.querySelectorAll(".find input").forEach(finder.line);
if (document.querySelector("#find-field")) finder.answer(document.querySelector("#find-field"));
else if (finderKeys.open) finderKeys.show();
if (document.activeElement?.matches(".find input")) finder.load().catch(() => {});
