import { meshEdges } from '../../peer/room/edges.ts'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import { TabringError } from '../../util/errors.ts'
import { givenSwitches } from '../../util/switches.ts'
import type { AdapterFacts, RunEvent, RunResult } from '../api.ts'
import { type ComputeClient, type StartWorker, startCompute } from './client.ts'

/**
 * Ranks of this page without a room: each a compute worker with its own device, all linked to all by ports. They share the GPU.
 *
 * One run at a time, on the first `worldSize` of them; workers and devices stay for the next one.
 */
export class LocalRanks {
  readonly #startWorker: StartWorker
  readonly #ranks: { readonly compute: ComputeClient; readonly opened: Promise<AdapterFacts> }[] =
    []
  #epoch = 0
  #isClosed = false

  constructor(startWorker: StartWorker) {
    this.#startWorker = startWorker
  }

  /** Opens missing ranks up to `worldSize`, their devices in parallel; returns what they compute on. errors: `gpu.unavailable`, `worker.dead`. */
  async open(worldSize: number): Promise<AdapterFacts> {
    while (this.#ranks.length < worldSize && !this.#isClosed) {
      const compute = startCompute(this.#startWorker)
      const opened = compute.api.open(undefined, givenSwitches())
      opened.catch(() => undefined)
      this.#ranks.push({ compute, opened })
    }
    const facts = await Promise.all(this.#ranks.map(({ opened }) => opened))
    return facts[0]
  }

  /**
   * Trains on the first `worldSize` ranks to the end of all of them.
   *
   * order: by rank. errors: of the rank that failed first, and those of `open`; the ranks can then only be closed.
   */
  async train(
    worldSize: number,
    config: TrainConfig,
    baseUrl: string,
    onEvent: (event: RunEvent, atMs: number) => void,
  ): Promise<RunResult[]> {
    await this.open(worldSize)
    if (this.#isClosed) {
      throw new TabringError(
        'graph.misuse',
        'train: these local ranks have been closed. Create new ones.',
      )
    }
    const epoch = ++this.#epoch
    const apis = this.#ranks.slice(0, worldSize).map(({ compute }) => compute.api)
    const linked = meshEdges(worldSize).flatMap(([from, to]) => {
      const { port1, port2 } = new MessageChannel()
      return [
        apis[from].addLink(epoch, to, { kind: 'port', port: port1 }),
        apis[to].addLink(epoch, from, { kind: 'port', port: port2 }),
      ]
    })
    await Promise.all(linked)
    const results = await Promise.all(
      apis.map((api, rank) =>
        api.train({ epoch, rank, worldSize, who: 'local' }, config, baseUrl, (events) => {
          for (const { event, atMs } of events) onEvent(event, atMs)
        }),
      ),
    )
    await Promise.all(apis.map((api) => api.leave()))
    return results
  }

  /** Ends all workers at once; what is pending rejects with `worker.dead`. */
  close(): void {
    this.#isClosed = true
    for (const { compute } of this.#ranks) compute.terminate()
  }
}
