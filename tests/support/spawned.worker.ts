import * as dist from '../../src/entries/distributed.ts'
import {
  destroyProcessGroup,
  env,
  getWorldSize,
  initProcessGroup,
  serveRank,
} from '../../src/entries/distributed.ts'
import { trainHere } from './spawned-training.ts'

/** What one rank of a spawn does. */
export type Doing =
  | { what: 'train'; steps: number; rows: number }
  | { what: 'fail'; who: number }
  | { what: 'close'; who: number }
  | { what: 'late'; who: number }
  | { what: 'wait'; received: string }
  | { what: 'inherit' }
  | { what: 'no clone' }

export interface Trained {
  rank: number
  worldSize: number
  sum: number[]
  kinds: string[]
  losses: number[]
  weights: number[]
}

serveRank(async (rank: number, doing: Doing): Promise<unknown> => {
  switch (doing.what) {
    case 'train': {
      const group = await initProcessGroup()
      const numbers = Float32Array.from([rank + 1, 10 * rank])
      await dist.allReduce(numbers)
      const kinds = [...group.stats().links.values()].map(({ kind }) => kind)
      const trained = await trainHere(doing.steps, doing.rows, rank, true)
      const received: Trained = {
        rank: group.rank,
        worldSize: getWorldSize(),
        sum: [...numbers],
        kinds,
        ...trained,
      }
      await destroyProcessGroup()
      return received
    }
    case 'fail':
      await initProcessGroup()
      if (rank === doing.who) throw new RangeError('no batch', { cause: new TypeError('inner') })
      // The others wait for it in a collective.
      await dist.barrier()
      return undefined
    case 'close':
      await initProcessGroup()
      if (rank === doing.who) {
        close()
        // What came before the end may still be heard for a moment: of a barrier, all.
        await new Promise(() => undefined)
      }
      await dist.barrier()
      return undefined
    case 'late':
      if (rank === doing.who) setTimeout(() => void Promise.reject(new Error('from a timer')))
      await new Promise(() => undefined)
      return undefined
    case 'wait':
      new BroadcastChannel(doing.received).postMessage(rank)
      await new Promise(() => undefined)
      return undefined
    case 'inherit':
      return [env.RUN_ID, rank]
    case 'no clone':
      return () => undefined
  }
})
