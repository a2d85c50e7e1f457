/** Starts a compute worker that trains the demos, for `startCompute`. */
export const startWorker = (name: string): Worker =>
  new Worker(new URL('./compute.worker.ts', import.meta.url), { type: 'module', name })
