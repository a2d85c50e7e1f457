/** Points that count half as much as the newest, by position of the slider. */
export const halfLives = [0, 2, 5, 10, 20, 50, 100]

interface SmoothingToolProps {
  /** Which of `halfLives`. */
  readonly at: number
  readonly onChange: (at: number) => void
}

/** How much of a line's noise is taken out. */
export function SmoothingTool({ at, onChange }: SmoothingToolProps) {
  return (
    <label class="tool">
      <span>Smoothing</span>
      <input
        type="range"
        min={0}
        max={halfLives.length - 1}
        value={at}
        aria-valuetext={at ? `half-life ${halfLives[at]} steps` : 'off'}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
      <span class="mono tool-value">{at ? halfLives[at] : 'off'}</span>
    </label>
  )
}
