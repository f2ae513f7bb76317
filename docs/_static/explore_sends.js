// What will this line send? The answers of three compilers (_ext/explorer_sends.py).

EXPLORERS.sends = class extends Explorer {
  first() {
    return { ask: "operation", line: this.data.lines.at(-1), spec: "xy,-", x: "x,-", w: "-,y", to: "", from: "x,y", into: "-,xy", machine: 1 };
  }

  // The answers for each machine, and the number of what Explicit axes say.
  numbers(chosen = this.chosen) {
    const { data } = this;
    const orders = Object.keys(data.specs);
    const place = (spec) => orders.indexOf(spec);
    if (chosen.ask === "product") return data.product[place(chosen.x)]?.[place(chosen.w)]?.[data.results.indexOf(chosen.to)];
    if (chosen.ask === "reshard") return data.reshard[place(chosen.from)]?.[place(chosen.into)];
    return data.operation[data.lines.indexOf(chosen.line)]?.[place(chosen.spec)];
  }

  // The front page has a few lines, and one kind of question.
  get door() {
    return this.place.classList.contains("door") ? this.data.door : null;
  }

  cuts() {
    if (this.door) return Object.keys(this.door.specs);
    return Object.keys(this.data.specs).slice(0, this.data.product.length);
  }

  specs(key, legend, values, more = []) {
    const named = (spec) => this.door?.specs[spec] ?? code(this.data.specs[spec]);
    const shown = values.map((spec) => [spec, pictured(this.data.pictures[spec]), named(spec)]);
    return this.choice(key, legend, [...more, ...shown], "specs");
  }

  sent(change) {
    const three = this.numbers({ ...this.chosen, ...change })?.slice(0, 3).map((n) => this.data.answers[n][1]);
    if (!three) return "";
    const differ = new Set(three).size > 1 ? " ≠" : "";
    return make("em", {}, three[this.chosen.machine] + differ);
  }

  choices() {
    const { data } = this;
    const machine = data.machines[this.chosen.machine] ?? data.machines[0];
    const ask = this.choice("ask", "What do you ask?", [
      ["operation", "an operation"],
      ["product", "a product ", code("x @ w")],
      ["reshard", "from spec to spec"],
    ]);
    const left = "where the compiler leaves it";
    const rest = {
      operation: () => [
        this.specs("spec", "How are its arrays split?", this.cuts()),
        this.choice("line", `Which line? What each ${machine} sends (≠: the machines differ)`, (this.door ?? data).lines.map((line) => [line, code(line), this.sent({ line })]), "lines"),
      ],
      product: () => [
        this.specs("x", ["How is ", code("x[2048, 4096]"), " split?"], this.cuts()),
        this.specs("w", ["How is ", code("w[4096, 8192]"), " split?"], this.cuts()),
        this.specs("to", "Where shall the result be?", data.results.slice(1), [["", left]]),
      ],
      reshard: () => [
        this.specs("from", ["From: ", code("x[2048, 4096]")], Object.keys(data.specs)),
        this.specs("into", "To", Object.keys(data.specs)),
      ],
    };
    const [first, ...others] = (rest[this.chosen.ask] ?? rest.operation)();
    return this.door ? [first, ...others] : [ask, first, ...others];
  }

  step([kind, told, axes]) {
    const words = make("figcaption", {}, make("b", {}, kind), ` of ${told}`, make("br"), this.data.means[kind] ?? "");
    const drawn = this.data.exchanges[`${kind} ${axes}`] ?? "";
    return make("figure", { className: "step", innerHTML: drawn }, words);
  }

  answers() {
    const { data } = this;
    return this.numbers()?.slice(0, 3).map((n) => {
      const [steps, sent, held, output] = data.answers[n];
      return { steps: steps.map((step) => data.steps[step]), sent, held, output: data.types[output] };
    });
  }

  // What each machine answers: the choice of one of them is the comparison.
  cards() {
    const cards = this.answers()?.map(({ steps, sent, held }, n) => {
      const kinds = [...new Set(steps.map(([kind]) => kind))].join(", ") || "no collective";
      const bar = make("i");
      bar.style.setProperty("--part", this.numbers()[4][n]);
      const name = make("b", {}, this.data.machines[n]);
      return [n, name, make("span", {}, "sends ", make("strong", {}, sent)), bar, make("span", {}, kinds), make("small", {}, `temporaries ${held}`)];
    });
    return cards ? [this.choice("machine", "Three machines answer: press one", cards, "cards")] : [];
  }

  // What a type says, in words: where an axis is cut, and into how many parts.
  read(type) {
    const cut = type.slice(1, -1).split(", ").map((axis) => axis.split("@")).filter(([, over]) => over);
    const words = cut.map(([size, over], n) => {
      const axes = over.replace(/[()]/g, "").replace(",", " and ");
      const named = n ? "" : axes === over ? "mesh axis " : "mesh axes ";
      return `${size} cut in ${this.data.parts[over]} over ${named}${axes}`;
    });
    return words.length ? words.join(", ") : "whole on every device";
  }

  found() {
    const { data, chosen } = this;
    const numbers = this.numbers();
    if (!numbers) return [make("p", {}, "That was not asked of the compilers: choose again.")];
    const { steps, sent, output } = this.answers()[chosen.machine] ?? this.answers()[0];
    const result = make("p", { className: "result" }, `Each of eight devices sends ${sent}. The result: `, code(output), `, ${this.read(output)}.`);
    const typed = data.types[numbers[3]];
    const refused = !typed.startsWith("[");
    const explicit = make("p", {}, "Under Explicit axes: ", refused ? "refused, " : "the type ", code(typed), refused ? "" : ".");
    const link = make("p", { className: "versions" }, `Compiled for eight devices of each machine, without running: ${data.versions}.`);
    const pictures = make("div", { className: "steps" }, ...steps.map((one) => this.step(one)));
    return [result, pictures, explicit, link];
  }
};
