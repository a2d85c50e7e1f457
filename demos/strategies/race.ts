import { LocalRanks } from '../../src/worker/page/local-ranks.ts'
import { startWorker } from '../start-worker.ts'
import { configOf, type Settings } from './settings.ts'
import { StrategyLog } from './strategy-log.ts'

interface RaceOptions {
  /** What addresses of data are relative to. */
  readonly baseUrl: string
  /** Called when a strategy has an event, or ends. */
  readonly onChange: () => void
}

/** Strategies that train one after the other, on ranks of this tab: side by side they would compete for one GPU, and their times would mean nothing. */
export class Race {
  readonly logs: readonly StrategyLog[]
  readonly settings: Settings
  /** Resolves behind the last strategy. errors: of the strategy that failed; `worker.dead` after `cancel`. */
  readonly done: Promise<void>
  readonly #ranks: LocalRanks

  constructor(settings: Settings, { baseUrl, onChange }: RaceOptions) {
    this.settings = settings
    this.logs = settings.strategies.map(
      (strategy) => new StrategyLog(strategy, configOf(settings, strategy)),
    )
    this.#ranks = new LocalRanks(startWorker)
    this.done = this.#run(baseUrl, onChange).finally(() => this.#ranks.close())
  }

  /** The strategy that trains, or trained last. */
  get current(): StrategyLog {
    return this.logs.findLast(({ stage }) => stage !== 'waiting') ?? this.logs[0]
  }

  cancel(): void {
    this.#ranks.close()
  }

  async #run(baseUrl: string, onChange: () => void): Promise<void> {
    for (const log of this.logs) {
      log.begin(performance.timeOrigin + performance.now())
      onChange()
      const results = await this.#ranks.train(
        log.strategy.ranks,
        log.config,
        baseUrl,
        (event, atMs) => {
          log.add(event, atMs)
          onChange()
        },
      )
      log.finish(results)
      onChange()
    }
  }
}
