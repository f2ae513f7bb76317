// A menu of the book's editions, where the site is published with more than one.
// `editions.json` at the root lists them; the one in an edition's folder says where that is.
async function read(file) {
  const answer = await fetch(file);
  return answer.ok ? answer.json() : {};
}

async function fill(menu) {
  const here = new URL(document.documentElement.dataset.content_root, location);
  const { up = "." } = await read(new URL("editions.json", here));
  const root = new URL(up, here);
  const { editions = {} } = await read(new URL("editions.json", root));
  if (Object.keys(editions).length < 2) return;
  const page = location.pathname.slice(here.pathname.length) || "index.html";
  for (const [folder, pages] of Object.entries(editions)) {
    const start = new URL(folder, root);
    const link = document.createElement("a");
    link.href = new URL(pages.includes(page) ? page : "index.html", start);
    link.textContent = folder.replace("/", "") || "newest";
    if (start.href === here.href) {
      link.setAttribute("aria-current", "true");
      menu.querySelector("summary").textContent = `Edition: ${link.textContent}`;
    }
    const item = document.createElement("li");
    item.append(link);
    menu.querySelector("ul").append(item);
  }
  menu.hidden = false;
}

document.addEventListener("DOMContentLoaded", () => {
  const menu = document.querySelector("nav.editions");
  if (menu && location.protocol.startsWith("http")) fill(menu); // a file may read no other
});
