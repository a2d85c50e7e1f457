import { serveCompute } from '../src/worker/compute/compute-worker.ts'
import { tasks } from './tasks.ts'

/** The compute worker of the pages: it trains the demos. */
serveCompute(tasks)
