import { hueOf } from '../../src/ui/parts/hue.ts'

export interface StripSpan {
  readonly kind: 'forward' | 'backward' | 'optimizer'
  /** In it, where there is room: the micro-batch. */
  readonly label: string
  readonly fromMs: number
  readonly toMs: number
}

interface StripProps {
  /** What it shows, for those who do not see it. */
  readonly words: string
  /** By device. */
  readonly lanes: readonly (readonly StripSpan[])[]
  readonly lengthMs: number
  /** A moment that is marked. */
  readonly ms?: number
}

/** Narrower spans have no room for a label. */
const minShare = 0.018

/** When each device does what. */
export const Strip = ({ words, lanes, lengthMs, ms }: StripProps) => (
  <div class="split-strip" role="img" aria-label={words}>
    {lanes.map((spans, device) => (
      <div key={device} class="split-lane">
        <span class="lane-name hue-text" style={hueOf(device)}>
          {device}
        </span>
        <div class="lane">
          {spans.map(({ kind, label, fromMs, toMs }) => (
            <span
              key={`${kind} ${label} ${fromMs}`}
              class="task"
              data-kind={kind}
              style={{
                left: `${(100 * fromMs) / lengthMs}%`,
                width: `${(100 * (toMs - fromMs)) / lengthMs}%`,
              }}
            >
              {(toMs - fromMs) / lengthMs > minShare && label}
            </span>
          ))}
          {ms !== undefined && (
            <span class="cursor" style={{ left: `${(100 * ms) / lengthMs}%` }} />
          )}
        </div>
      </div>
    ))}
  </div>
)
