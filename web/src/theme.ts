// The colours: the system's, or light or dark if the user chose so.

const key = "pollux-theme";
const select = document.getElementById("theme") as HTMLSelectElement;

function apply(theme: string) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

const chosen = localStorage.getItem(key) ?? "system";
apply(chosen);
select.value = chosen;
select.onchange = () => {
  localStorage.setItem(key, select.value);
  apply(select.value);
};
