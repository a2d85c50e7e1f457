import { useMemo } from 'preact/hooks'
import { formatMs } from '../../src/ui/parts/format.ts'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { usePlayer } from '../../src/ui/parts/use-player.ts'
import type { Settings } from './settings.ts'
import {
  costs,
  microBatchesOf,
  momentOf,
  oneDeviceMs,
  type Simulated,
  simulated,
} from './simulated.ts'
import { Strip, type StripSpan } from './strip.tsx'

/** How long the playback of a step takes. units: ms. */
const playedMs = 14_000

const lanesOf = ({ spans }: Simulated, devices: number): StripSpan[][] =>
  Array.from({ length: devices }, (_, device) =>
    spans
      .filter((span) => span.device === device)
      .map(({ kind, microBatch, startMs, endMs }) => ({
        kind,
        label: String(microBatch),
        fromMs: startMs,
        toMs: endMs,
      })),
  )

/** The same step on devices that share nothing: arithmetic, with micro-batches that move through the stages. */
export function Stages({ settings }: { settings: Settings }) {
  const { devices, schedule, split } = settings
  const microBatches = microBatchesOf(settings)
  const step = useMemo(() => simulated(settings, microBatches), [devices, schedule, split])
  const whole = useMemo(() => simulated(settings, 1), [devices])
  const played = useMemo(
    () => ({
      endMs: step.endMs,
      stops: [...new Set([0, ...step.spans.map(({ endMs }) => endMs)])].sort((a, b) => a - b),
      rateAt: () => step.endMs / playedMs,
    }),
    [step],
  )
  const { ms, isPlaying, toggle, seek, step: leap } = usePlayer(played)
  const { running, held, transfers } = momentOf(step, devices, ms)
  const lengthMs = Math.max(step.endMs, whole.endMs)
  const times = (ratio: number) => `${ratio.toFixed(2)} times as fast as one device`
  return (
    <Panel id="simulated" title="On separate devices (simulated)">
      <p class="quiet">
        Arithmetic, not a measurement: devices of equal speed that share nothing. The network takes{' '}
        {costs.forward} ms forward and {costs.backward} ms backward for a batch on one device, each
        task {costs.perTask} ms more, a transfer {costs.transfer} ms.
      </p>
      <div class="stages" aria-hidden="true">
        {running.map((task, stage) => (
          <div key={stage} class="stage" data-kind={task?.kind ?? 'idle'}>
            <span class="stage-name hue-dot" style={hueOf(stage)}>
              stage {stage}
            </span>
            <span class="stage-task">
              {task ? `${task.kind === 'forward' ? 'F' : 'B'}${task.microBatch}` : 'idle'}
            </span>
            <span class="stage-held">
              holds{' '}
              {held[stage].length === 0
                ? 'nothing'
                : held[stage].map((one) => (
                    <span key={one} class="held">
                      {one}
                    </span>
                  ))}
            </span>
          </div>
        ))}
        {transfers.map(({ kind, microBatch, from, to, share }) => (
          <span
            key={`${kind} ${microBatch} ${from}`}
            class="transfer"
            data-kind={kind}
            style={{ left: `${(100 * (0.5 + from + share * (to - from))) / devices}%` }}
          >
            {microBatch}
          </span>
        ))}
      </div>
      <div class="clock">
        <button type="button" class="small" onClick={() => leap(-1)} disabled={ms === 0}>
          ◀ Step
        </button>
        <button type="button" class="small go" onClick={toggle}>
          {isPlaying ? 'Pause' : 'Play'}
        </button>
        <button type="button" class="small" onClick={() => leap(1)} disabled={ms >= step.endMs}>
          Step ▶
        </button>
        <input
          type="range"
          aria-label="Time in the step"
          aria-valuetext={formatMs(ms)}
          min={0}
          max={step.endMs}
          step="any"
          value={ms}
          onInput={(event) => seek(Number(event.currentTarget.value))}
        />
        <span class="quiet">{formatMs(ms)}</span>
      </div>
      <h3>
        Pipeline, {microBatches} micro-batches: {formatMs(step.endMs)},{' '}
        {times(oneDeviceMs / step.endMs)}, idle {Math.round(100 * step.bubble)} %
      </h3>
      <Strip
        words={`Pipeline on simulated devices, ${formatMs(step.endMs)}`}
        lanes={lanesOf(step, devices)}
        lengthMs={lengthMs}
        ms={ms}
      />
      <h3>
        Model parallel: {formatMs(whole.endMs)}, {times(oneDeviceMs / whole.endMs)}, idle{' '}
        {Math.round(100 * whole.bubble)} %
      </h3>
      <Strip
        words={`Model parallel on simulated devices, ${formatMs(whole.endMs)}`}
        lanes={lanesOf(whole, devices)}
        lengthMs={lengthMs}
      />
    </Panel>
  )
}
