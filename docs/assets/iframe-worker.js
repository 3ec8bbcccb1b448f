/* Search in pages that are opened as files: a browser starts no Worker there, so the worker's script runs in a hidden frame.
   The offline plugin of the theme would load such a script from elsewhere; it looks for this file's name and is content. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${new URL(url, document.baseURI)}"></` + "script>";
      frame.addEventListener("load", () => {
        this.inside = frame.contentWindow;
        this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
      document.body.append(frame);
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    terminate() {}
  };
}
