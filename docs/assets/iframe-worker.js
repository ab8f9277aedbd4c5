// The search of the documentation runs in a Worker, which browsers refuse to pages that are opened as files.
// There, a hidden frame does the Worker's work: it has a global scope of its own, in which the same script runs.
if (location.protocol === "file:" && "Worker" in window) {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const url = new URL(address, document.baseURI).href
      const frame = document.createElement("iframe")
      frame.hidden = true
      const begun = new Promise((resolve) => {
        const begin = () => {
          document.body.append(frame)
          const inside = frame.contentWindow
          const load = (source) =>
            new Promise((loaded) => {
              const script = inside.document.createElement("script")
              script.src = new URL(source, url).href
              script.onload = script.onerror = loaded
              inside.document.body.append(script)
            })
          inside.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
          load(url).then(() => resolve(inside))
        }
        document.body ? begin() : addEventListener("DOMContentLoaded", begin)
      })
      this.postMessage = (data) => begun.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
      this.terminate = () => frame.remove()
    }
  }
}
