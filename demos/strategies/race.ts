import { LocalRanks } from '../../src/worker/page/local-ranks.ts'
import { onCores, startWorker } from '../start-worker.ts'
import { configOf, experimentOf, type Settings } from './settings.ts'
import { simulatedStep } from './simulated.ts'
import { StrategyLog } from './strategy-log.ts'

interface RaceOptions {
  /** What addresses of data are relative to. */
  readonly baseUrl: string
  /** Called when a strategy has an event, or ends. */
  readonly onChange: () => void
}

/** Enough steps for a mean of how long a share takes. */
const maxShareSteps = 30

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
    const { devices } = experimentOf(settings.experiment)
    this.#ranks = new LocalRanks(startWorker, devices === 'cores' ? onCores() : {})
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
      if (log.strategy.isSimulated) {
        await this.#simulate(log, baseUrl)
        onChange()
        continue
      }
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

  /** Measures a share of the batch on one real device, for devices that this computer does not have. */
  async #simulate(log: StrategyLog, baseUrl: string): Promise<void> {
    const { strategy, config } = log
    const [one, two] = ['1', '2'].map(
      (name) => this.logs.find((other) => other.strategy.name === name)!,
    )
    const share = new StrategyLog(one.strategy, {
      ...config,
      batchSize: Math.ceil(config.batchSize / strategy.ranks),
      steps: Math.min(config.steps!, maxShareSteps),
    })
    await this.#ranks.train(1, share.config, baseUrl, (event, atMs) => share.add(event, atMs))
    // Each of two ranks sends as much as the gradients are.
    log.simulate(one, await simulatedStep(strategy.ranks, share.cost, two.cost.bytes))
  }
}
