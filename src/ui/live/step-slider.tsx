import { formatSeconds } from '../parts/format.ts'
import { type Shown, secondsBack } from './look-back.ts'

interface StepSliderProps {
  shown: Shown
  own: number
  onChoose: (at: number) => void
}

/** Goes back over the steps that were sampled, to the newest at its right end. */
export function StepSlider({ shown, own, onChoose }: StepSliderProps) {
  const { sets, at, isHeld } = shown
  const last = sets.length - 1
  const isNewest = at === last
  const place = isNewest
    ? isHeld
      ? 'held'
      : 'newest'
    : `${formatSeconds(secondsBack(shown, own))} ago`
  return (
    <p class="gantt-back">
      <label for="gantt-step">Sampled step</label>
      <input
        id="gantt-step"
        type="range"
        min={0}
        max={Math.max(1, last)}
        value={last > 0 ? at : 1}
        disabled={last < 1}
        aria-valuetext={`step ${sets[at]?.[0].step}, ${isNewest ? 'the newest' : place}`}
        onInput={({ currentTarget }) => onChoose(Number(currentTarget.value))}
      />
      <span class="quiet">{place}</span>
    </p>
  )
}
