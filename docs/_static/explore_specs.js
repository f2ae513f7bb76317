// Which device holds what? JAX's answers to a mesh, a shape and a spec, and what the judge
// says of a spec that is chosen in an exercise (_ext/explorer_specs.py).

EXPLORERS.specs = class extends Explorer {
  // Below an exercise the address and the choices have its name.
  constructor(place, name, data) {
    super(place, EXPLORERS.specs.exercise(place) ?? name, data);
  }

  static exercise(place) {
    return [...place.classList].find((word) => word.startsWith("answers-"))?.slice("answers-".length);
  }

  get exercise() {
    return this.data.exercises[EXPLORERS.specs.exercise(this.place)];
  }

  get asked() {
    return this.exercise ?? this.data;
  }

  first() {
    if (!this.exercise) return { mesh: "2x4", shape: "16,32", axis0: "x", axis1: "y", axis2: "-" };
    const meshes = Object.keys(this.exercise.meshes);
    return { mesh: meshes.length > 1 ? "" : meshes[0], axis0: "", axis1: "" };
  }

  // An address may ask for anything, and another mesh has other axes.
  settle() {
    const { chosen, asked } = this;
    if (!Object.hasOwn(asked.meshes, chosen.mesh)) chosen.mesh = this.first().mesh;
    if (!this.exercise && !Object.hasOwn(asked.shapes, chosen.shape)) chosen.shape = this.first().shape;
    const shape = (this.exercise ?? chosen).shape.split(",");
    this.options = asked.choices[chosen.mesh] ?? [];
    this.axes = shape.map((size, n) => [`axis${n}`, size]);
    for (const [key] of this.axes) if (!this.options.includes(chosen[key])) chosen[key] = this.exercise ? "" : "-";
    this.spec = this.axes.map(([key]) => chosen[key]);
  }

  choices() {
    this.settle();
    const { data, asked, axes, options, exercise } = this;
    const coded = (texts) => Object.entries(texts).map(([key, text]) => [key, code(text)]);
    const meshes = coded(asked.meshes);
    const mesh = meshes.length > 1 ? [this.choice("mesh", code("jax.make_mesh"), meshes)] : [];
    const entries = () => options.map((dim) => [dim, code(data.names[dim])]);
    const dims = options.length ? axes.map(([key, size], n) => this.choice(key, `Axis ${n} of the array (${size}): split over`, entries())) : [];
    if (!exercise) return [...mesh, this.choice("shape", "Shape", coded(asked.shapes)), ...dims, this.listing()];
    const sole = code(`jax.make_mesh(${Object.values(asked.meshes)[0]})`);
    const where = mesh.length ? ["."] : [", for the mesh ", sole, "."];
    return [make("p", { className: "here" }, "Or choose the answer here", ...where), ...mesh, ...dims];
  }

  code() {
    const { data, chosen, spec } = this;
    const entries = spec.map((dim) => data.names[dim]).join(", ");
    const told = { mesh: data.meshes[chosen.mesh], shape: data.shapes[chosen.shape], spec: `jax.P(${entries})` };
    return data.code.replace(/\{(\w+)\}/g, (_, name) => told[name]);
  }

  listing() {
    const pre = make("pre", { tabIndex: 0 }, code(this.code()));
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", "The code of this choice");
    const copy = make("button", { type: "button", name: "copy", value: "copy" }, "Copy");
    copy.onclick = async () => {
      try {
        await navigator.clipboard.writeText(this.code());
        copy.textContent = "Copied";
      } catch { // forbidden: what is selected can be copied by hand
        getSelection().selectAllChildren(pre);
        copy.textContent = "Selected";
      }
    };
    return make("div", { className: "listing" }, pre, copy);
  }

  // What the nested lists of answers have for the chosen spec.
  lookup(lists) {
    return this.spec.reduce((list, dim) => list?.[this.options.indexOf(dim)], lists);
  }

  picture(number) {
    const [wide, high, drawn] = this.data.pictures[number];
    return `<svg viewBox="0 0 ${wide} ${high}" width="${wide}" height="${high}" aria-hidden="true" fill="currentColor" font-family="system-ui, sans-serif" font-size="11" text-anchor="middle">${drawn}</svg>`;
  }

  figure(title, number) {
    return make("figure", { className: "part", innerHTML: this.picture(number) }, make("figcaption", {}, title));
  }

  // A spec stands in JAX's words as JAX writes it.
  words(number) {
    const entries = this.spec.map((dim) => this.data.names[dim]?.replaceAll('"', "'"));
    return this.data.words[number].replace("{}", `P(${entries.join(", ")}${entries.length > 1 ? "" : ","})`);
  }

  verdict() {
    const { data, chosen, exercise } = this;
    return data.verdicts[this.lookup(exercise.verdicts[chosen.mesh])];
  }

  found() {
    if (this.exercise) return this.judged();
    const { data, chosen } = this;
    const told = data.answers[this.lookup(data.states[chosen.mesh][chosen.shape])];
    if (typeof told === "number") {
      const [kind, ...rest] = this.words(told).split(": ");
      return [make("p", {}, "JAX refuses:"), make("p", { className: "refused" }, code(kind), `: ${rest.join(": ")}`), this.source()];
    }
    const [type, bytes, copies, holds] = told;
    const facts = { "bytes on a device": bytes, "copies of each part": copies, "devices, block by block": holds };
    const list = make("dl", {}, ...Object.entries(facts).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, `${value}`)]));
    return [make("p", { className: "type" }, code(type)), list, this.source()];
  }

  source() {
    return make("p", { className: "versions" }, `Run on eight simulated devices: ${this.data.versions}.`);
  }

  judged() {
    const told = this.verdict();
    if (!told) return [make("p", {}, this.options.length ? "Choose an entry for each axis of the array." : "Choose a mesh.")];
    const [word, ...lines] = told.slice(1).map((number) => this.words(number));
    const reasons = make("ul", {}, ...lines.map((line) => make("li", {}, line.replace(/^- /, ""))));
    const entries = this.spec.map((dim) => this.data.names[dim]).join(", ");
    const answer = make("p", {}, code(`jax.P(${entries})`), ": ", make("strong", {}, word));
    const verdict = make("div", { className: "verdict" }, answer, lines.length ? reasons : "");
    verdict.setAttribute("role", "group");
    verdict.setAttribute("aria-label", `Verdict: ${word.replace(".", "")}`);
    return [verdict];
  }

  brief() {
    const { data, chosen, exercise } = this;
    if (exercise) return "";
    const told = data.answers[this.lookup(data.states[chosen.mesh][chosen.shape])];
    return typeof told === "number" ? "JAX refuses this spec." : `${told[0]}: ${told[1]} bytes on a device`;
  }

  cards() {
    const { data, chosen, exercise } = this;
    if (exercise) {
      const number = this.verdict()?.[0] ?? -1;
      return [this.figure("The target", exercise.target), ...(number < 0 ? [] : [this.figure("Your answer", number)])];
    }
    const told = data.answers[this.lookup(data.states[chosen.mesh][chosen.shape])];
    return typeof told === "number" ? [] : [make("figure", { className: "part", innerHTML: this.picture(told.at(-1)) })];
  }
};
