// Turns each film of a page into a player. Without this script its frames stand side by side,
// as those of a `still` one always do.
// A thing with a data-key flies from where it was a frame ago; data-from names another start.

const BEAT = 2000; // ms for each frame while it plays
const FLIGHT = { duration: 450, easing: "ease-in-out", fill: "both" };
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
  button.title = button.ariaLabel = words;
};

// Where a thing stands in its picture, in CSS.
const place = (thing) => {
  const [x, y] = (thing.style.transform || thing.getAttribute("transform")).match(/-?[\d.]+%?/g);
  return `translate(${[x, y].map((number) => (number.endsWith("%") ? number : `${number}px`))})`;
};

// Let what moved since the frame before fly, and what is new appear; return the animations.
const fly = (before, after) => {
  const old = new Map([...before.querySelectorAll("[data-key]")].map((thing) => [thing.dataset.key, place(thing)]));
  return [...after.querySelectorAll(".msg, [data-key]")].flatMap((thing) => {
    const from = old.get(thing.dataset.from || thing.dataset.key);
    if (!from) return thing.animate({ opacity: [0, 1] }, FLIGHT);
    const path = [from, place(thing)];
    return path[0] === path[1] ? [] : thing.animate({ transform: path }, FLIGHT);
  });
};

class Player {
  constructor(film) {
    this.frames = [...film.querySelectorAll(":scope > ol > li")];
    this.last = this.frames.length - 1;
    this.flights = [];
    this.say = element("p", { className: "say", ariaLive: "polite" });
    this.slider = element("input", { type: "range", max: this.last, ariaLabel: "frame" });
    this.slider.oninput = () => this.stop().go(+this.slider.value);
    const back = element("button", { type: "button", onclick: () => this.stop().go(this.at - 1) });
    const on = element("button", { type: "button", onclick: () => this.stop().go(this.at + 1) });
    this.toggle = element("button", { type: "button", className: "toggle" });
    this.toggle.onclick = () => (this.timer ? this.stop() : this.play());
    sign(back, "back", "step back");
    sign(on, "on", "step forward");
    const controls = element("div", { className: "controls" }, back, this.toggle, on, this.slider);
    film.querySelector("ol").after(element("div", { className: "tools" }, this.say, controls));
    film.classList.add("player");
    this.stop().go(0);
  }

  go(to) {
    const from = this.at;
    this.at = Math.min(Math.max(to, 0), this.last);
    this.frames.forEach((frame, n) => frame.classList.toggle("here", n === this.at));
    this.flights.forEach((flight) => flight.cancel());
    const flies = this.at === from + 1 && !CALM.matches;
    this.flights = flies ? fly(this.frames[from], this.frames[this.at]) : [];
    const words = this.frames[this.at].querySelector("p").textContent;
    this.slider.value = this.at;
    this.slider.setAttribute("aria-valuetext", words);
    this.say.replaceChildren(element("span", { className: "count" }, `${this.at + 1} of ${this.last + 1}`), words);
  }

  play() {
    if (this.at === this.last) this.go(0);
    sign(this.toggle, "pause", "pause");
    this.timer = setInterval(() => {
      this.go(this.at + 1);
      if (this.at === this.last) this.stop();
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
  document.querySelectorAll("figure.film:not(.still):has(li + li)").forEach((film) => new Player(film));
});
