import { formatCount } from '../../src/ui/parts/format.ts'
import { ProgressBar } from '../../src/ui/parts/progress-bar.tsx'
import { StatusDot } from '../../src/ui/parts/status-dot.tsx'
import { experimentOf, type Settings } from './settings.ts'
import type { RaceState } from './use-race.ts'

const titles: Record<RaceState['stage'], string> = {
  idle: 'Ready',
  running: 'Training',
  finished: 'Finished',
  stopped: 'Cancelled',
  failed: 'Failed',
}
const tones = {
  idle: 'idle',
  running: 'busy',
  finished: 'good',
  stopped: 'idle',
  failed: 'bad',
} as const

/** Where the comparison stands, and the one thing to do now. */
export function Status({ race, settings }: { race: RaceState; settings: Settings | null }) {
  const { stage, logs } = race
  const isRunning = stage === 'running'
  const total = logs.reduce((sum, { config }) => sum + config.steps!, 0)
  const done = logs.reduce((sum, { step }) => sum + step, 0)
  const current = race.race?.current
  const strategy =
    current && `${current.strategy.words}, strategy ${logs.indexOf(current) + 1} of ${logs.length}`
  const tone = tones[stage]
  return (
    <section class="status" data-tone={tone} data-stage={stage} aria-label="Status">
      <div class="status-row">
        <StatusDot tone={tone} />
        <div class="words">
          {/* Changes with each strategy, which is seldom enough to be read out; steps are below. */}
          <h2>
            <span role="status">
              {isRunning && strategy ? `Training: ${strategy}` : titles[stage]}
            </span>
          </h2>
          <p key={stage} role={stage === 'failed' ? 'alert' : undefined}>
            {stageWords(race, settings)}
          </p>
        </div>
        <button
          type="button"
          class={isRunning ? 'stop' : 'go'}
          disabled={!isRunning && !settings}
          // The second click of a double click lands on what takes this button's place.
          onClick={({ detail }) => {
            if (detail > 1) return
            if (isRunning) race.cancel()
            else if (settings) race.run(settings)
          }}
        >
          {isRunning ? 'Cancel' : logs.length > 0 ? 'Run again' : 'Run'}
        </button>
      </div>
      {isRunning && (
        <div class="progress">
          <ProgressBar label="Steps done, of all strategies" done={done} of={total} />
        </div>
      )}
    </section>
  )
}

function stageWords({ stage, error, race }: RaceState, settings: Settings | null): string {
  if (stage === 'failed') return `${race?.current.strategy.words}: ${error}`
  if (stage === 'running' && race) {
    const { stage: is, step, config, strategy } = race.current
    if (strategy.isSimulated) return 'Measuring a share of the batch on one device'
    return is === 'setup'
      ? 'Loading and compiling'
      : `Step ${formatCount(step)} of ${formatCount(config.steps!)}`
  }
  if (stage === 'stopped') return 'Strategies that finished keep their curves.'
  if (!settings) return 'Correct the settings first.'
  if (stage === 'finished')
    return 'By samples, the chart compares how well they learn; by seconds, how fast they were here. Below it stands why.'
  const { strategies, steps } = settings
  return `${strategies.map(({ words }) => words).join('; ')}: ${formatCount(steps)} steps of ${experimentOf(settings.experiment).words}.`
}
