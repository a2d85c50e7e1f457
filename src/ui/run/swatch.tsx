import { lookOf } from './run-looks.ts'

/** A stretch of the line of the run with this look. */
export function Swatch({ slot }: { slot: number }) {
  const { colour, dash } = lookOf(slot)
  return (
    <svg class="swatch" viewBox="0 0 30 8" aria-hidden="true">
      <path
        d="M0 4H30"
        style={{ stroke: `var(${colour})` }}
        stroke-dasharray={dash.join(' ') || undefined}
      />
    </svg>
  )
}
