import { startWorker } from '../../util/start-worker.ts'
import { runThread, type ThreadStart } from './thread.ts'

export interface Thread {
  stop(): void
}

const ownWorker = () =>
  new Worker(new URL('./thread.worker.ts', import.meta.url), { type: 'module' })

/** Starts a thread in a worker of this page or process. `onEnd`: it will do nothing more, and why. errors: what the engine throws. */
export function startThread(start: ThreadStart, onEnd: (why: string) => void): Thread {
  if (!('Worker' in globalThis)) return startInNode(start, onEnd)
  const worker = startWorker('Worker', ownWorker, onEnd)
  const handleHeld = ({ data: name }: MessageEvent<string>) => {
    navigator.locks.request(name, () => onEnd('the browser ended it')).catch(() => undefined)
  }
  worker.addEventListener('message', handleHeld, { once: true })
  worker.postMessage(start)
  return { stop: () => worker.terminate() }
}

/** From the text of `runThread`: Node may not know the file's language. */
function startInNode(start: ThreadStart, onEnd: (why: string) => void): Thread {
  const { Worker } = process.getBuiltinModule('node:worker_threads')
  // Bundlers that keep names call __name.
  const text = `const __name = (made) => made
    ;(${runThread})(require('node:worker_threads').workerData)`
  const worker = new Worker(text, { eval: true, workerData: start })
  worker.on('error', (error) => onEnd(String(error)))
  worker.on('exit', (code) => onEnd(`it exited with ${code}`))
  // A process may end while it sleeps.
  worker.unref()
  return { stop: () => void worker.terminate() }
}
