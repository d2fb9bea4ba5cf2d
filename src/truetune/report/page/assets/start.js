truetune.ready = truetune.unpack("data").then((data) => {
  for (const [id, open] of truetune.sections) {
    const element = document.getElementById(id);
    if (element && data[id] !== undefined) open(element, data[id]);
  }
  document.documentElement.dataset.ready = "true";
});
