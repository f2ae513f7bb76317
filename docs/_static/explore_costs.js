// What does a collective cost? Counted by the module ring_cost (_ext/explorer_costs.py);
// here a time is a sum, and everything else is looked up.

EXPLORERS.costs = class extends Explorer {
  // The formula. A load is two whole numbers, over and under a line.
  static cost([steps, over, under], bytes, alpha, beta) {
    const sent = (bytes * over) / under;
    const [latency, bandwidth] = [steps * alpha, sent / beta];
    return { steps, sent, latency, bandwidth, seconds: latency + bandwidth, bound: latency > bandwidth ? "latency" : "bandwidth" };
  }

  static MOST = 40; // the slider ends at 2 to this many bytes

  first() {
    return { kind: "all-reduce", network: "TPU v5p", devices: "64", how: "switch", bytes: "1048576" };
  }

  // What is chosen, where that exists; else what is nearest in the lists.
  get state() {
    const { kinds, networks } = this.data;
    const { chosen } = this;
    const kind = chosen.kind in kinds ? chosen.kind : this.first().kind;
    const name = chosen.network in networks ? chosen.network : this.first().network;
    const network = networks[name];
    const counts = Object.keys(network.shapes);
    const devices = counts.find((count) => Number(count) >= Number(chosen.devices)) ?? counts.at(-1);
    const hows = Object.keys(network.counts);
    const how = hows.includes(chosen.how) ? chosen.how : hows[0];
    const whole = /^\d{1,13}$/.test(chosen.bytes) && Number(chosen.bytes) <= 2 ** this.constructor.MOST;
    const bytes = Number(whole ? chosen.bytes : this.first().bytes);
    const counted = network.counts[how][devices][Object.keys(kinds).indexOf(kind)];
    return { kind, name, network, devices, how, hows, bytes, counted };
  }

  // While the bytes change, the form stays: a slider that is drawn anew lets go of its thumb.
  show() {
    if (!this.sizing) return super.show();
    this.shown.replaceChildren(...this.cards());
    this.answer.replaceChildren(...this.found());
    this.foot.textContent = this.brief();
  }

  settle() {
    const { kind, name, devices, how, bytes } = this.state;
    Object.assign(this.chosen, { kind, network: name, devices, how: how || this.first().how, bytes: String(bytes) });
  }

  resize(bytes) {
    this.sizing = true;
    this.choose({ bytes: String(bytes) });
    this.sizing = false;
  }

  // ------------------------------------------------------------------------- asking

  choices() {
    this.settle();
    const { data } = this;
    const { network, hows } = this.state;
    const names = Object.keys(data.networks).map((name) => [name, name]);
    const how = hows.length > 1 ? [this.choice("how", "Algorithm", hows.map((each) => [each, data.hows[each]]))] : [];
    return [
      this.choice("kind", "Collective", Object.keys(data.kinds).map((kind) => [kind, kind])),
      this.choice("network", "Machine", names.slice(0, data.machines)),
      this.choice("network", "Or a network whose link is invented", names.slice(data.machines)),
      this.choice("devices", "Devices", Object.keys(network.shapes).map((count) => [count, count])),
      ...how,
      this.sizes(),
    ];
  }

  sizes() {
    const { MOST } = this.constructor;
    const { bytes } = this.state;
    const slider = make("input", { type: "range", name: "costs-power", min: 0, max: MOST, step: 1 });
    const field = make("input", { type: "number", name: "costs-bytes", min: 0, max: 2 ** MOST, step: 1, value: bytes });
    const power = (number) => Math.max(0, Math.round(Math.log2(number || 1)));
    const told = () => slider.setAttribute("aria-valuetext", this.amount(this.state.bytes));
    slider.value = power(bytes);
    slider.setAttribute("aria-label", "bytes, in powers of two");
    told();
    slider.oninput = () => {
      this.resize(2 ** Number(slider.value));
      field.value = this.state.bytes;
      told();
    };
    field.oninput = () => {
      if (!field.value || !field.validity.valid) return;
      this.resize(Number(field.value));
      slider.value = power(this.state.bytes);
      told();
    };
    field.setAttribute("aria-label", "bytes");
    const number = make("span", { className: "number" }, field, " bytes");
    return make("fieldset", { className: "choice size" }, make("legend", {}, "Operand on each device"), make("div", {}, slider, number));
  }

  // ---------------------------------------------------------------------- answering

  unit(number, names, base) {
    let place = 0;
    while (place < names.length - 1 && number >= base ** (place + 1)) place += 1;
    return `${Number((number / base ** place).toPrecision(3)).toLocaleString("en")} ${names[place]}`;
  }

  amount(bytes) {
    return this.unit(bytes, this.data.units.bytes, 1024);
  }

  time(seconds) {
    const names = this.data.units.seconds;
    const place = names.findIndex((name, n) => seconds >= 1000 ** -n);
    const at = place < 0 ? names.length - 1 : place;
    return `${Number((seconds * 1000 ** at).toPrecision(3)).toLocaleString("en")} ${names[at]}`;
  }

  get costs() {
    const { network, bytes, counted } = this.state;
    return this.constructor.cost(counted, bytes, network.alpha, network.beta);
  }

  cards() {
    const { latency, bandwidth, seconds, bound, steps, sent } = this.costs;
    const big = make("p", { className: "price" }, make("strong", {}, this.time(seconds)), seconds ? ` bound by ${bound}` : " nothing is sent");
    Object.assign(big.dataset, { seconds, bound, steps, sent });
    const part = (kind, took) => {
      const bar = make("i", { className: kind });
      bar.style.flexGrow = seconds ? took / seconds : 0;
      return bar;
    };
    const bars = make("div", { className: "terms" }, part("latency", latency), part("bandwidth", bandwidth));
    const legend = make("dl", {},
      make("dt", { className: "latency" }, "latency"), make("dd", {}, this.time(latency)),
      make("dt", { className: "bandwidth" }, "bandwidth"), make("dd", {}, this.time(bandwidth)));
    return [big, bars, legend];
  }

  found() {
    const { kind, name, network, devices, bytes, counted, how } = this.state;
    const { alpha, beta, shapes, sources } = network;
    const { steps, sent, latency, bandwidth, seconds } = this.costs;
    const least = this.constructor.cost(counted.slice(3), bytes, alpha, beta);
    const link = `${this.unit(beta, ["B", "kB", "MB", "GB", "TB"], 1000)}/s`;
    const where = [`${name}, ${shapes[devices]}`, ...(how ? [this.data.hows[how]] : [])].join(", ");
    const article = kind.startsWith("a") ? "an" : "a";
    const result = make("p", { className: "result" }, `${this.time(seconds)} for ${article} ${kind} of ${this.amount(bytes)} on ${devices} devices (${where}): ${steps} steps, ${this.amount(sent)} over the busiest link.`);
    const formula = make("p", { className: "formula" },
      make("span", {}, "t = k α + s / β"),
      make("span", {}, `= ${steps} × ${this.time(alpha)} + ${sent.toLocaleString("en", { maximumFractionDigits: 1 })} B / ${link}`),
      make("span", {}, `= ${this.time(latency)} + ${this.time(bandwidth)} = ${this.time(seconds)}`));
    const below = make("p", {}, `While no switch adds or copies, no algorithm takes less than ${this.time(Math.max(least.latency, least.bandwidth))}: the farthest device is ${least.steps} ${least.steps === 1 ? "step" : "steps"} away, and a device must get ${this.amount(least.sent)} over each of its links.`);
    const links = sources.flatMap(([words, href], n) => [n ? ", " : "", make("a", { href }, words)]);
    const from = make("p", { className: "versions" }, ...(links.length ? ["α and β from ", ...links, ". What links can do at most; other traffic and the start of a collective are left out."] : ["α and β are invented. Find your own before you believe a time."]));
    return [result, formula, below, from];
  }
};
