/** How things stand. */
export type Tone = 'idle' | 'busy' | 'good' | 'bad'

/** Says by shape and colour how things stand. */
export function StatusDot({ tone }: { tone: Tone }) {
  const shapes: Record<Tone, string> = {
    idle: 'M8 3a5 5 0 1 0 0 10a5 5 0 1 0 0-10',
    busy: 'M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12',
    good: 'M3 8.5l3.5 3.5L13 4.5',
    bad: 'M4 4l8 8M12 4l-8 8',
  }
  return (
    <svg class="lamp" viewBox="0 0 16 16" aria-hidden="true">
      <path d={shapes[tone]} />
    </svg>
  )
}
