import { wrap } from 'comlink'
import type { OpsWorker } from './ops.worker.ts'

/** The page that `bench/devices.ts` drives. Its worker computes, as that of a rank does. */

declare global {
  interface Window {
    benchOps: ReturnType<typeof wrap<OpsWorker>>
  }
}

const worker = new Worker(new URL('./ops.worker.ts', import.meta.url), { type: 'module' })
window.benchOps = wrap<OpsWorker>(worker)
