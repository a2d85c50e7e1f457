import { runThread, type ThreadStart } from './thread.ts'

addEventListener('message', ({ data }: MessageEvent<ThreadStart>) => {
  // It is free only when this worker is gone, of which nothing else tells its owner.
  const name = `tabring-thread ${crypto.randomUUID()}`
  const hold = () => {
    postMessage(name)
    // The message is sent before the thread begins, and never returns to its event loop.
    setTimeout(runThread, 0, data)
    return new Promise(() => undefined)
  }
  navigator.locks.request(name, hold).catch(() => runThread(data))
})
