// Search runs in a worker, and browsers start none for a page that was opened from the disk. There a frame does
// the same work: it loads the worker's script and passes messages to and fro. Over HTTP nothing here is used.
(() => {
  if (location.protocol !== "file:") return;

  const load = (view, address) =>
    new Promise((done, failed) => {
      const script = view.document.createElement("script");
      script.src = address;
      script.onload = done;
      script.onerror = () => failed(new Error(`${address} cannot be loaded`));
      view.document.body.append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><body></body>";
      frame.onload = () => this.start(frame.contentWindow, new URL(address, document.baseURI).href);
      document.documentElement.append(frame);
      this.frame = frame;
    }

    start(view, address) {
      view.importScripts = (...addresses) =>
        addresses.reduce((before, next) => before.then(() => load(view, next)), Promise.resolve());
      view.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      load(view, address).then(
        () => {
          this.view = view;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        },
        (error) => this.dispatchEvent(new ErrorEvent("error", { error, message: error.message })),
      );
    }

    postMessage(data) {
      if (!this.view) this.waiting.push(data);
      else this.view.dispatchEvent(new this.view.MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
})();
