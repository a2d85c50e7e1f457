import { Component } from 'preact'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import type { DataMessage } from './recorder.ts'
import type { Story } from './story.ts'
import { formatTime } from './words.ts'

interface TimelineProps {
  readonly story: Story
  readonly ms: number
  readonly onSeek: (ms: number) => void
}

/** The whole run: a lane for each rank that sends, a bar for each message from its sending to its arrival. */
export function Timeline({ story, ms, onSeek }: TimelineProps) {
  const { settings, endMs } = story
  return (
    <Panel id="timeline" title="Messages over time" aside={`${formatTime(endMs)} in all`}>
      <div class="timeline">
        <ol class="lane-names" aria-hidden="true">
          {Array.from({ length: settings.ranks }, (_, rank) => (
            <li key={rank} class="hue-text" style={hueOf(rank)}>
              {rank}
            </li>
          ))}
        </ol>
        <div class="lanes">
          <Bars story={story} />
          <div class="cursor" style={{ left: `${(100 * ms) / (endMs || 1)}%` }} />
          <input
            type="range"
            class="scrub"
            aria-label="Time"
            aria-valuetext={formatTime(ms)}
            min={0}
            max={endMs}
            step="any"
            value={ms}
            onInput={(event) => onSeek(Number(event.currentTarget.value))}
          />
        </div>
        <ol class="ticks" aria-hidden="true">
          {[0, 0.25, 0.5, 0.75, 1].map((share) => (
            <li key={share}>{formatTime(share * endMs)}</li>
          ))}
        </ol>
      </div>
      <p class="quiet">
        One lane for each rank that sends. Filled: to be added; outlined: to be copied; thin:
        waiting for the rank's uplink, or to be resent. Click or drag to go to a time.
      </p>
    </Panel>
  )
}

/** As wide as the strip, whatever that is. */
const width = 1000
const laneHeight = 30
/** Between a bar and the next. */
const gap = 2
/** Where many of a rank's messages are under way at once. */
const thinnest = 3

/** Drawn once a run. */
class Bars extends Component<{ story: Story }> {
  override shouldComponentUpdate({ story }: { story: Story }): boolean {
    return story !== this.props.story
  }

  override render({ story }: { story: Story }) {
    const { settings, messages, endMs } = story
    const scale = width / (endMs || 1)
    return (
      <svg
        viewBox={`0 0 ${width} ${laneHeight * settings.ranks}`}
        preserveAspectRatio="none"
        style={{ height: `${settings.ranks * (settings.ranks > 8 ? 15 : 24)}px` }}
        aria-hidden="true"
      >
        {Array.from({ length: settings.ranks }, (_, rank) => {
          const rows = stacked(messages.filter(({ from }) => from === rank))
          const height = (laneHeight - 6) / rows.length
          return (
            <g key={rank} style={hueOf(rank)} transform={`translate(0 ${rank * laneHeight + 3})`}>
              {rows.flatMap((row, y) =>
                row.map((message) => (
                  <Bar
                    key={`${message.to} ${message.range.start} ${message.sentMs}`}
                    message={message}
                    scale={scale}
                    y={y * height}
                    height={height}
                    endMs={endMs}
                  />
                )),
              )}
            </g>
          )
        })}
      </svg>
    )
  }
}

interface BarProps {
  readonly message: DataMessage
  readonly scale: number
  readonly y: number
  readonly height: number
  readonly endMs: number
}

function Bar({ message, scale, y, height, endMs }: BarProps) {
  const { sentMs, into, attempts } = message
  const arrivedMs = Math.min(endMs, message.arrivedMs)
  const leavesMs = Math.min(arrivedMs, attempts.at(-1)!.leavesMs)
  const middle = y + height / 2
  const thickness = Math.max(thinnest, 0.8 * height)
  return (
    <g class="message" data-into={into} data-lost={attempts.length > 1}>
      {leavesMs > sentMs && (
        <line class="held-up" x1={sentMs * scale} x2={leavesMs * scale} y1={middle} y2={middle} />
      )}
      <rect
        class="flight"
        x={leavesMs * scale}
        y={middle - thickness / 2}
        width={Math.max(1.2, (arrivedMs - leavesMs) * scale - gap)}
        height={thickness}
      />
    </g>
  )
}

/** Messages of one rank in as few rows as they need not to lie over one another. */
function stacked(messages: readonly DataMessage[]): DataMessage[][] {
  const rows: DataMessage[][] = []
  for (const message of messages) {
    const free = rows.find((row) => row.at(-1)!.arrivedMs <= message.sentMs)
    if (free) free.push(message)
    else rows.push([message])
  }
  return rows.length > 0 ? rows : [[]]
}
