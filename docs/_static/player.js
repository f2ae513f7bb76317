// Turns each film of a page into a player. Without this script its frames stand side by side,
// as those of a `still` one always do.
// A thing with a data-key flies from where it was a frame ago; data-from names another start.

const BEAT = 2000; // ms for each frame while it plays
const FLIGHT = 450; // ms until what moves has arrived
const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const SIGNS = {
  back: "M14 4 6 10l8 6z",
  on: "M6 4l8 6-8 6z",
  play: "M5 3l12 7-12 7z",
  pause: "M5 3h4v14H5zM11 3h4v14h-4z",
};

const element = (name, more = {}, ...children) => {
  const made = Object.assign(document.createElement(name), more);
  made.append(...children);
  return made;
};

// A button shows a sign, and says a word to those who do not see it.
const sign = (button, name, words) => {
  button.innerHTML = `<svg viewBox="0 0 20 20" aria-hidden="true"><path d="${SIGNS[name]}"/></svg>`;
  button.title = words;
  button.setAttribute("aria-label", words);
};

// Where a thing stands in its picture: [x, y], with units.
const place = (thing) => {
  const numbers = (thing.style.transform || thing.getAttribute("transform")).match(/-?[\d.]+%?/g);
  return numbers.slice(0, 2).map((number) => (number.endsWith("%") ? number : `${number}px`));
};

// Let what moved between two frames fly, on the later picture; return the flights.
const fly = (before, after, direction) => {
  const how = { duration: FLIGHT, easing: "ease-in-out", direction, fill: "both" };
  const old = new Map();
  before.querySelectorAll("[data-key]").forEach((thing) => old.set(thing.dataset.key, place(thing)));
  const flights = [...after.querySelectorAll(".msg")].map((arrow) => arrow.animate({ opacity: [0, 1] }, how));
  for (const thing of after.querySelectorAll("[data-key]")) {
    const from = old.get(thing.dataset.from || thing.dataset.key);
    const [x, y] = place(thing);
    if (!from) flights.push(thing.animate({ opacity: [0, 1] }, how));
    else if (from[0] !== x || from[1] !== y) {
      const path = [from, [x, y]].map(([a, b]) => `translate(${a}, ${b})`);
      flights.push(thing.animate({ transform: path }, how));
    }
  }
  return flights;
};

class Player {
  constructor(film) {
    this.frames = [...film.querySelectorAll(":scope > ol > li")];
    this.at = 0;
    this.flights = [];
    this.say = element("p", { className: "say" });
    this.say.setAttribute("aria-live", "polite");
    this.slider = element("input", { type: "range", min: 0, max: this.frames.length - 1, value: 0 });
    this.slider.setAttribute("aria-label", "frame");
    this.slider.oninput = () => this.stop().go(+this.slider.value);
    this.toggle = element("button", { type: "button", className: "toggle" });
    this.toggle.onclick = () => (this.timer ? this.stop() : this.play());
    const back = element("button", { type: "button", onclick: () => this.stop().go(this.at - 1) });
    const on = element("button", { type: "button", onclick: () => this.stop().go(this.at + 1) });
    sign(back, "back", "step back");
    sign(on, "on", "step forward");
    const controls = element("div", { className: "controls" }, back, this.toggle, on, this.slider);
    const tools = element("div", { className: "tools" }, this.say, controls);
    tools.onkeydown = (event) => this.key(event);
    film.querySelector("ol").after(tools);
    film.classList.add("player");
    this.stop().show();
  }

  key(event) {
    const last = this.frames.length - 1;
    const steps = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: last };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.stop().go(steps[event.key]);
  }

  go(at) {
    clearTimeout(this.landing);
    const to = Math.min(Math.max(at, 0), this.frames.length - 1);
    const [from, step] = [this.at, to - this.at];
    this.at = to;
    if (step !== -1 || CALM.matches) this.show();
    if (Math.abs(step) !== 1 || CALM.matches) return;
    const [early, late] = [Math.min(from, to), Math.max(from, to)].map((n) => this.frames[n]);
    this.flights.push(...fly(early, late, step < 0 ? "reverse" : "normal"));
    if (step < 0) {
      this.tell(); // the later frame stays until all has flown back
      this.landing = setTimeout(() => this.show(), FLIGHT);
    }
  }

  show() {
    this.flights.splice(0).forEach((flight) => flight.cancel());
    this.frames.forEach((frame, n) => frame.classList.toggle("here", n === this.at));
    this.tell();
  }

  tell() {
    this.slider.value = this.at;
    const words = this.frames[this.at].querySelector("p").textContent;
    this.slider.setAttribute("aria-valuetext", words);
    const count = element("span", { className: "count" }, `${this.at + 1} of ${this.frames.length}`);
    this.say.replaceChildren(count, words);
  }

  play() {
    const last = this.frames.length - 1;
    if (this.at === last) this.go(0);
    sign(this.toggle, "pause", "pause");
    this.timer = setInterval(() => {
      this.go(this.at + 1);
      if (this.at === last) this.stop();
    }, BEAT);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    sign(this.toggle, "play", "play");
    return this;
  }
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("figure.film:not(.still)").forEach((film) => {
    if (film.querySelectorAll("li").length > 1) new Player(film);
  });
});
