// Explorers look up what JAX and its compilers said; they compute nothing and draw nothing.
// A place `.explorer.explorer-NAME` gets its form when it is near the window, and with it
// explore_NAME.js, which puts its class into EXPLORERS, and the data, explorers/NAME.js, a
// script as well, since a page that was opened as a file may read nothing else.
// The choices stand in the address behind `?NAME=`, so that a link leads to an answer.

const SCRIPTS = document.currentScript.src;
const EXPLORERS = {};

const make = element; // of player.js, which every page has

const pictured = (svg, ...words) => {
  const made = make("span", { className: "pictured", innerHTML: svg });
  made.append(...words);
  return made;
};

const code = (text) => make("code", {}, text);

class Explorer {
  constructor(place, name, data) {
    Object.assign(this, { place, name, data });
    const asked = new URLSearchParams(location.search).get(name);
    this.chosen = { ...this.first(), ...Object.fromEntries(new URLSearchParams(asked ?? "")) };
    this.asks = make("div", { className: "asks" });
    this.foot = make("p", { className: "foot", ariaHidden: "true" }); // on a phone, while choosing above
    this.answer = make("div", { className: "answer" });
    this.answer.setAttribute("aria-live", "polite");
    this.shown = make("div", { className: "shown" }); // beside the answer, not told again
    this.form = make("form", { onsubmit: (event) => event.preventDefault() }, this.asks, this.foot, make("div", { className: "gets" }, this.shown, this.answer));
    this.show();
    place.prepend(this.form); // the tables stay, for paper
    this.watch();
  }

  // On a phone the answer stays at the lower edge once half a screen of choices is seen.
  watch() {
    const half = { rootMargin: "0px 0px -50%" };
    new IntersectionObserver((seen) => {
      this.form.classList.toggle("begun", seen.at(-1).isIntersecting);
    }, half).observe(this.asks);
  }

  // The answer in a line.
  brief() {
    return this.answer.querySelector(".result")?.textContent ?? "";
  }

  // A choice of one: values are [value, what stands for it].
  choice(key, legend, values, className = "") {
    const items = values.map(([value, ...shown]) => {
      const input = make("input", { type: "radio", name: `${this.name}-${key}`, value });
      input.checked = String(this.chosen[key]) === String(value);
      input.onchange = () => this.choose({ [key]: value });
      return make("label", {}, input, make("span", {}, ...shown));
    });
    const title = make("legend", {}, ...[legend].flat());
    return make("fieldset", { className: `choice ${className}` }, title, make("div", {}, ...items));
  }

  choose(change) {
    Object.assign(this.chosen, change);
    const address = new URL(location);
    address.searchParams.set(this.name, new URLSearchParams(this.chosen));
    try {
      history.replaceState(null, "", address);
    } catch {
      // a browser may forbid it to a page that was opened as a file
    }
    this.show();
  }

  // Draw the form anew, and put the focus back where it was.
  show() {
    const { name, value } = document.activeElement ?? {};
    this.asks.replaceChildren(...this.choices());
    this.shown.replaceChildren(...this.cards());
    this.answer.replaceChildren(...this.found());
    this.foot.textContent = this.brief();
    if (name) [...this.form.elements].find((e) => e.name === name && e.value === value)?.focus();
  }
}

// ------------------------------------------------------------------------- beginning

const load = (file) => new Promise((done, fail) => {
  document.head.append(make("script", { src: new URL(file, SCRIPTS), onload: done, onerror: fail }));
});

const begin = async (place) => {
  const name = [...place.classList].find((word) => word.startsWith("explorer-")).slice("explorer-".length);
  try {
    await Promise.all([load(`explore_${name}.js`), load(`explorers/${name}.js`)]);
    new EXPLORERS[name](place, name, window.shardbook[name]);
  } catch (error) {
    place.classList.remove("live"); // the tables are seen again
    throw error;
  }
};

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    begin(target);
  }
}, { rootMargin: "300px" });

document.querySelectorAll(".explorer").forEach((place) => {
  place.classList.add("live"); // its tables are not seen from now on: nothing jumps later
  near.observe(place);
});
