const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const steps = new Set<() => void>()

function runAll(): void {
  for (const step of [...steps].reverse()) {
    steps.delete(step)
    try {
      step()
    } catch (thrown) {
      console.error(`clean-up: ${thrown}`)
    }
  }
}

let isListening = false
function listen(): void {
  if (isListening) return
  isListening = true
  process.once('exit', runAll)
  // Vitest itself has ended, however, and forgot its worker.
  process.once('disconnect', () => {
    runAll()
    process.kill(process.pid, 'SIGKILL')
  })
  for (const signal of signals) {
    // Ctrl-C: then this process goes as it would have gone.
    process.once(signal, () => {
      runAll()
      process.kill(process.pid, signal)
    })
  }
}

/** Returns a function that calls `step` now; it is called at the latest when this process ends, by Ctrl-C too. Once in any case. */
export function cleanUp(step: () => void): () => void {
  listen()
  steps.add(step)
  return () => {
    if (steps.delete(step)) step()
  }
}
