import { formatMs } from '../../src/ui/parts/format.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import type { Race } from './race.ts'
import { experiments } from './settings.ts'
import type { StrategyLog } from './strategy-log.ts'
import { reasonsOf } from './why.ts'

interface TimesProps {
  /** That are on or have ended, the newest last; one of each experiment. */
  readonly races: readonly Race[]
}

/** Where the time of a step goes in each experiment that was compared here, and why more ranks are faster there or not. */
export function Times({ races }: TimesProps) {
  const shown = races.filter(({ logs }) => logs.some(({ step }) => step > 1))
  return (
    <Panel id="times" title="Are more ranks faster?">
      <ul class="legend">
        <li data-is="computed">computing</li>
        <li data-is="exchanged">exchanging gradients, and waiting for it</li>
      </ul>
      {shown.toReversed().map((race) => (
        <Steps key={race.settings.experiment} race={race} />
      ))}
      <p class="quiet">
        {shown.length === 0 && 'Run a comparison to measure it. '}
        {shown.length < 2 &&
          'Then run another experiment: here they stand side by side until the page is closed. '}
        Means of the steps behind the first.
      </p>
    </Panel>
  )
}

/** A step of each strategy as a bar, and the reasons. */
function Steps({ race: { logs, settings } }: { race: Race }) {
  const { words, devices } = experiments[settings.experiment]
  const begun = logs.filter(({ step }) => step > 1)
  const longestMs = Math.max(...begun.map(({ cost }) => cost.totalMs))
  const reasons = reasonsOf(logs, { kind: devices, cores: navigator.hardwareConcurrency })
  return (
    <section class="steps" aria-label={words}>
      <h3>{words}</h3>
      <ul>
        {begun.map((log) => (
          <StepBar key={log.strategy.name} log={log} longestMs={longestMs} />
        ))}
      </ul>
      {reasons.map((reason) => (
        <p key={reason}>{reason}</p>
      ))}
    </section>
  )
}

function StepBar({ log, longestMs }: { log: StrategyLog; longestMs: number }) {
  const { totalMs, computedMs, exchangedMs } = log.cost
  const wide = (ms: number) => ({ width: `${(100 * ms) / longestMs}%` })
  return (
    <li>
      <span>{log.strategy.words}</span>
      <span class="step-bar" aria-hidden="true">
        <span data-is="computed" style={wide(computedMs)} />
        <span data-is="exchanged" style={wide(exchangedMs)} />
      </span>
      <span class="mono">
        {formatMs(totalMs)}
        <span class="unseen">
          {` a step: computing ${formatMs(computedMs)}, exchanging ${formatMs(exchangedMs)}`}
        </span>
      </span>
    </li>
  )
}
