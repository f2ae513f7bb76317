// Explorers look up what JAX and its compilers answered, in HTML that _ext/explorer_NAME.py
// wrote into explorers/NAME.js; only the calculator of costs computes, a sum.
//
//   first      the choices at first
//   menus      [the choices that a menu depends on, {their values: its HTML}]; null: all above
//   answers    {the values of all menus: [HTML of cards, HTML of the answer to each card]}
//   source     HTML below each answer
//   pictures   where HTML has {3} stands picture 3
//   variants   what a place with such a class has in place of these
//
// The choices stand in the address behind `?NAME=`, so that a link leads to an answer.

const SCRIPTS = document.currentScript.src;
const PARTS = `<div class="asks"></div><p class="foot" aria-hidden="true"></p><div class="gets">
  <div class="shown"></div><div class="answer" aria-live="polite"></div></div>`;

class Explorer {
  constructor(place, name, data) {
    const query = new URLSearchParams(location.search).get(name);
    const chosen = { ...data.first, ...Object.fromEntries(new URLSearchParams(query ?? "")) };
    const form = element("form", { innerHTML: PARTS, className: "begun" }); // of player.js
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", ({ target }) => target.validity.valid && this.choose(target));
    form.addEventListener("click", ({ target }) => target.name === "copy" && copyCode(target));
    Object.assign(this, { name, data, chosen, form });
    for (const part of ["asks", "shown", "answer", "foot"]) this[part] = form.querySelector(`.${part}`);
    this.ask();
    this.tell();
    place.prepend(form); // the tables stay, for paper
  }

  choose({ name, value }) {
    this.chosen[name] = value;
    this.ask();
    this.tell();
    [...this.form.elements].find((input) => input.name === name && input.value === value)?.focus();
    this.link();
  }

  // Put the choices into the address; a browser forbids it to a page that was opened as a file.
  link() {
    const address = new URL(location);
    address.searchParams.set(this.name, new URLSearchParams(this.chosen));
    if (address.protocol !== "file:") history.replaceState(null, "", address);
  }

  ask() {
    this.asks.replaceChildren();
    this.shown.replaceChildren();
    for (const [keys, menus] of this.data.menus) this.fill(this.asks, menus[this.key(keys)]);
  }

  tell() {
    this.shown.replaceChildren();
    this.answer.replaceChildren();
    const [cards, ...answers] = this.look();
    this.fill(this.shown, cards);
    this.fill(this.answer, (answers[this.chosen.machine] ?? answers[0]) + (this.data.source ?? ""));
    this.foot.textContent = this.answer.querySelector(".result, .type, .refused")?.textContent ?? "";
  }

  look() {
    return this.data.answers[this.key()] ?? this.data.missing;
  }

  key(names) {
    return (names?.map((name) => this.chosen[name]) ?? [...new FormData(this.form).values()]).join("|");
  }

  // A menu that does not have what is chosen keeps what it has chosen itself.
  fill(part, html = "") {
    part.insertAdjacentHTML("beforeend", html.replace(/\{(\d+)\}/g, (_, n) => this.data.pictures[n]));
    for (const input of part.querySelectorAll("[type=radio]")) input.checked ||= input.value === this.chosen[input.name];
    Object.assign(this.chosen, Object.fromEntries(new FormData(this.form)));
  }
}

const copyCode = (button) => {
  const code = button.previousElementSibling;
  getSelection().selectAllChildren(code); // where a browser forbids more, it can be copied by hand
  navigator.clipboard?.writeText(code.textContent).then(() => { button.textContent = "Copied"; }, () => {});
};

// ----------------------------------------------------------------------------- costs

// Where the counts of steps and loads are looked up, and a time is a sum.
class Costs extends Explorer {
  ask() {
    const { bytes } = this.chosen;
    super.ask();
    const field = this.form.elements.bytes;
    field.value = bytes;
    if (!field.validity.valid) field.value = field.defaultValue;
    this.size(field.value);
  }

  // The slider has the power of two that is nearest.
  size(bytes) {
    const slider = this.form.querySelector("[type=range]");
    this.chosen.bytes = bytes;
    slider.value = Math.round(Math.log2(Math.max(bytes, 1)));
    slider.setAttribute("aria-valuetext", amount(bytes));
  }

  // While the bytes change the menus stay: a slider that is drawn anew lets go of its thumb.
  choose(input) {
    if (input.type === "radio") return super.choose(input);
    const { bytes } = this.form.elements;
    if (input !== bytes) bytes.value = 2 ** input.value;
    this.size(bytes.value);
    this.tell();
    return this.link();
  }

  look() {
    const { kind, network, devices, bytes } = this.chosen;
    const { alpha, beta, source } = this.data.networks[network];
    const [steps, load, far, needed, where] = this.data.counts[this.key().split("|").slice(0, -1).join("|")];
    const [sent, received] = [bytes * load, bytes * needed];
    const terms = { latency: steps * alpha, bandwidth: sent / beta };
    const seconds = terms.latency + terms.bandwidth;
    const bound = seconds ? `bound by ${terms.latency > terms.bandwidth ? "latency" : "bandwidth"}` : "nothing is sent";
    const bars = Object.entries(terms).map(([term, part]) => `<i class="${term}" style="flex-grow: ${seconds && part / seconds}"></i>`);
    const words = Object.entries(terms).map(([term, part]) => `<dt class="${term}">${term}</dt><dd>${time(part)}</dd>`);
    const exact = sent.toLocaleString("en", { maximumFractionDigits: 1 });
    const least = time(Math.max(far * alpha, received / beta));
    return [
      `<p class="price"><strong>${time(seconds)}</strong> ${bound}</p><div class="terms">${bars.join("")}</div><dl>${words.join("")}</dl>`,
      `<p class="result">${time(seconds)} for ${kind.startsWith("a") ? "an" : "a"} ${kind} of ${amount(bytes)} on ${devices} devices (${where}): ${steps} steps, ${amount(sent)} over the busiest link.</p>
      <p class="formula"><span>t = k α + s / β</span><span>= ${steps} × ${time(alpha)} + ${exact} B / ${scale(beta, ["B", "kB", "MB", "GB"], 1000)}/s</span>
        <span>= ${time(terms.latency)} + ${time(terms.bandwidth)} = ${time(seconds)}</span></p>
      <p>While no switch adds or copies, no algorithm takes less than ${least}: the farthest device is ${far} ${far === 1 ? "step" : "steps"} away, and a device must get ${amount(received)} over each of its links.</p>${source}`,
    ];
  }
}

const scale = (number, units, base) => {
  const place = Math.max(units.findLastIndex((_, power) => number >= base ** power), 0);
  return `${Number((number / base ** place).toPrecision(3)).toLocaleString("en")} ${units[place]}`;
};
const amount = (bytes) => scale(bytes, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const time = (seconds) => scale(seconds * 1e6, ["µs", "ms", "s"], 1000);

// ------------------------------------------------------------------------- beginning

const begin = (place) => {
  const name = [...place.classList].find((word) => word.startsWith("explorer-")).slice("explorer-".length);
  const src = new URL(`explorers/${name}.js`, SCRIPTS); // a page that was opened as a file may read nothing else
  const onload = () => {
    const { variants, ...data } = window.shardbook[name];
    const variant = [...place.classList].find((word) => word in variants);
    const own = { name, ...data, ...variants[variant] };
    new (name === "costs" ? Costs : Explorer)(place, own.name, own);
  };
  const onerror = () => place.classList.remove("live"); // the tables are shown again
  document.head.append(element("script", { src, onload, onerror }));
};

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    begin(target);
  }
}, { rootMargin: "300px" });

document.querySelectorAll(".explorer").forEach((place) => {
  place.classList.add("live"); // its tables are hidden from now on: nothing jumps later
  near.observe(place);
});
