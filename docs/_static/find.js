// The search. _ext/search_index.py writes its sections; they and MiniSearch are loaded at the
// first search, as scripts, so that it works on pages opened as files, too.
const finder = { root: document.documentElement.dataset.content_root ?? "./" };

// --------------------------------------------------------------------------- words

finder.word = /([\p{L}\p{N}_]+(?:-[\p{L}\p{N}_]+)*)/gu;
finder.words = text => text.match(finder.word) ?? [];

finder.stem = word => {
  const stem = word.replace(/ies$/, "y").replace(/s$/, "");
  const shorter = stem.replace(/(ing|ed|e)$/, "");
  return shorter.length > 2 ? shorter.replace(/([bdgmnprt])\1$/, "$1") : stem;
};

// `all_gather`, `AllGather` and all-gather have the parts all, gather; numbers are none, but 3-D
// is one part, as 3D is.
finder.parts = word => word.replace(/(\d)-?D$/i, "$1d").replace(/([a-z\d])(?=[A-Z])/g, "$1_")
  .toLowerCase().split(/[_-]+/).filter(part => /\p{L}/u.test(part)).map(finder.stem);

finder.terms = word => {
  const parts = finder.parts(word);
  return parts.length > 1 ? [parts.join(""), ...parts] : parts;
};

finder.escape = text => text.replace(/\s+/g, " ").trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// A query that is one name of an API, perhaps called, without `jax.` before it. What names an
// error is none: messages explain those.
finder.apiName = text => {
  const name = /^\s*@?([\p{L}_][\p{L}\p{N}_.]*?)\.?(?:\(.*)?\s*$/u.exec(text)?.[1] ?? "";
  if (/(?:Error|Exception|Warning)$/i.test(name)) return "";
  return name.replace(/\.py$/, "").replace(/^(?:(?:jax|lax|jnp|np|numpy)\.)+(?=\w{2})/i, "");
};

// -------------------------------------------------------------------------- errors

// Which constant words stand in a text, as `matches` in src/book/error_index.py says.
finder.marks = /^\s*(?:\[[a-z ]*\d+\]:?|E(?= )|[>!|])\s*/gm; // of test runners and launchers
finder.plain = text => text.replace(finder.marks, "").replaceAll("`", "").replace(/\s+/g, " ");
finder.pattern = words => new RegExp(
  words.replaceAll("`", "").split("...").map(finder.escape).join(".{0,400}?"), "i");

// The length of the longest of the patterns that a plain text has, or 0.
finder.fit = (plain, patterns) => Math.max(
  0, ...patterns.map(pattern => pattern.test(plain) ? pattern.source.length : 0));

finder.raised = /(?:^|[\s.])\w*(?:Error|Exception|Warning|Exit)\b.{0,2}:/;
finder.frame =
  /^\W*(?:File ".*(?:\n[ \t].*)?|Traceback.*|During handling.*|The above exc.*)$|^[\s^~-]+$/gm;
finder.paths = /(?:[\w.~:-]*\/)+[\w.+-]*(?::\d+)*\]?/g;

// Of a traceback: its messages, each with the lines below, and not the frames.
finder.message = text => {
  const lines = text.replace(finder.marks, "").replace(finder.frame, "").split("\n");
  const first = lines.findIndex(line => finder.raised.test(line));
  return lines.slice(lines.length > 3 ? Math.max(first, 0) : 0).join(" ");
};

finder.query = text => {
  const words = finder.words(finder.message(text).replace(finder.paths, " "));
  return words.length > 5 ? words.slice(0, 250).join(" ") : text;
};

// The entries of the page of errors whose words stand in the text, the longest first.
finder.entries = text => {
  const plain = finder.plain(text);
  return finder.sections.filter(each => each.patterns)
    .map(each => ({ ...each, fit: finder.fit(plain, each.patterns), terms: [] }))
    .filter(each => each.fit).sort((a, b) => b.fit - a.fit).slice(0, 3);
};

// --------------------------------------------------------------------------- ranking

// Words of every text are no part of a question.
finder.common = new Set(`a an and are as be but by can do does from have how i if in is it its my
  not of on or so that the this to was what when which why with you`.split(/\s+/));

finder.build = () => {
  finder.index = new MiniSearch({
    idField: "href",
    fields: ["page", "title", "about", "text", "code"],
    storeFields: ["href", "page", "title", "text", "code", "place", "words"],
    tokenize: text => finder.words(text)
      .filter(word => !finder.common.has(word.toLowerCase())).flatMap(finder.terms),
    processTerm: term => term,
    searchOptions: { boost: { title: 1.5, code: 0.5 } },
  });
  for (const each of finder.sections) each.patterns = each.words?.map(finder.pattern);
  return finder.index.addAllAsync(finder.sections, { chunkSize: 40 });
};

// The entries that fit come first, lists of everything last; a page has two at most.
finder.search = (text, typing = false) => {
  const name = finder.apiName(text);
  const query = name || finder.query(text);
  const few = finder.words(query).length < 6;
  const found = finder.index.search(query, {
    prefix: (term, n, terms) => typing && few && n === terms.length - 1 && term.length > 1,
    fuzzy: term => few && term.length > 3 && !finder.index.search(term).length && 0.25,
    boostDocument: name ? finder.weighName(name, typing) : undefined,
  });
  const entries = finder.entries(text);
  const counts = {};
  const others = found.filter(({ href, words }) => {
    const page = href.split("#")[0];
    counts[page] = (counts[page] ?? 0) + 1;
    return counts[page] <= (words ? 1 : 2) && !entries.some(each => each.href === href);
  });
  others.sort((a, b) => (a.place > 1) - (b.place > 1));
  return [...entries, ...others].slice(0, 15);
};

// A page that is called so, headings that hold the name, and texts that begin with it come
// before what has its parts.
finder.weighName = (name, typing) => {
  const words = finder.escape(name).replaceAll("_", "[_-]");
  const literal = new RegExp(`(?<!\\w)${words}${typing ? "" : "(?!\\w)"}`, "i");
  return (href, term, { page, title, text, place }) => {
    const isPage = !title && href.endsWith(`/${name.toLowerCase()}.html`);
    const early = 1 + 3 / (1 + (literal.exec(text)?.index ?? Infinity) / 100);
    return early * (literal.test(title || page) ? 10 : 1) * (isPage ? 1000 : 1) * (place ? 0.2 : 1);
  };
};

// -------------------------------------------------------------------------- results

// A text as pieces, those that were found marked.
finder.mark = (text, isFound) => text.split(finder.word).map(
  (piece, n) => n % 2 && isFound(piece) ? element("mark", {}, piece) : piece); // of player.js

// The part of a section in which most of what was found stands together; of code the index has
// words alone. Of an entry of the page of errors all: the cause and the cure.
finder.excerpt = ({ text, code = "", fit }, isFound) => {
  if (fit) return [text];
  const count = part => new Set(finder.words(part).filter(isFound)).size;
  const parts = text.match(/\S.{0,240}(?=\s|$)/gs) ?? [""];
  const best = parts.reduce((one, other) => count(other) > count(one) ? other : one);
  const inCode = finder.words(code).filter(isFound).slice(0, 5).join(", ");
  if (inCode && !count(best)) return ["In its code: ", ...finder.mark(inCode, isFound)];
  const [start, end] = [parts[0], parts.at(-1)].map(part => part === best ? "" : "\u2026");
  return [start, " ", ...finder.mark(best, isFound), " ", end];
};

finder.item = result => {
  const isFound = word => finder.terms(word).some(term => result.terms.includes(term));
  const title = result.title ? [" \u203a ", ...finder.mark(result.title, isFound)] : [];
  const link = element("a", { href: finder.root + result.href }, result.page, ...title);
  const excerpt = element("p", {}, ...finder.excerpt(result, isFound));
  return element("li", {}, link, excerpt);
};

// --------------------------------------------------------------------------- the page

finder.script = file => new Promise((resolve, reject) => {
  const onerror = () => reject(new Error(`${file} could not be loaded`));
  document.head.append(
    element("script", { src: finder.root + file, onload: resolve, onerror }));
});
finder.load = () => finder.ready ??= Promise.all(
  ["_static/vendor/minisearch.min.js", "find-index.js"].map(finder.script)).then(finder.build);

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
  const count = results.length === 1 ? "One section." : `${results.length} sections, best first.`;
  if (!text.trim()) status.textContent = "";
  else status.textContent = results.length ? count : "Nothing in this book has these words.";
  list.replaceChildren(...results.map(finder.item));
};

finder.setAddress = (name, value) => {
  const address = new URL(location.href);
  address.searchParams.delete(name);
  if (value.trim()) address.searchParams.set(name, value.trim());
  try {
    history.replaceState(history.state, "", address);
  } catch { /* some browsers refuse it to a file */ }
};

finder.delay = (action, time = 150) => {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, time);
  };
};

// The page of results: it answers while one types, and its address holds the question.
finder.answer = field => {
  const show = typing => {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
    const long = field.value.length > 2000; // then the address has the message, and no frames
    finder.setAddress("q", (long ? finder.message(field.value) : field.value).slice(0, 2000));
    finder.show(field, typing);
  };
  field.addEventListener("input", finder.delay(() => show(true)));
  field.addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    field.form.requestSubmit();
  });
  field.form.addEventListener("submit", event => { event.preventDefault(); show(false); });
  field.value ||= new URLSearchParams(location.search).get("q") ?? ""; // or was typed meanwhile
  if (field.value) show(false);
};

// `/` and Ctrl-K lead to a field that is seen, or to the page of results.
finder.press = event => {
  const held = event.ctrlKey || event.metaKey;
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  const slash = event.key === "/" && !held && !typing;
  if (event.altKey || !slash && !(held && !event.shiftKey && event.key.toLowerCase() === "k")) return;
  event.preventDefault();
  const field = [...document.querySelectorAll("#find-field, .find input")].find(each =>
    each.checkVisibility({ visibilityProperty: true }) && each.getBoundingClientRect().right > 0);
  field?.focus();
  field?.select();
  if (!field) location.assign(`${finder.root}search.html`);
};

// A field of one line would run the lines of a pasted error together.
finder.prepare = field => {
  field.addEventListener("focus", () => finder.load().catch(() => {}));
  field.addEventListener("paste", event => {
    const text = event.clipboardData?.getData("text") ?? "";
    if (!text.trim().includes("\n")) return;
    event.preventDefault();
    const words = finder.message(text).replace(/\s+/g, " ").trim().slice(0, 1500);
    field.setRangeText(words, field.selectionStart, field.selectionEnd, "end");
  });
};

// This script is deferred: the page has been read.
document.querySelectorAll(".find input").forEach(finder.prepare);
document.querySelectorAll("#find-field").forEach(finder.answer);
addEventListener("keydown", finder.press);
