import { inPercent, named, shown } from './characters.ts'

interface NextCharacterProps {
  prompt: string
  characters: readonly string[]
  probabilities: Float32Array
  onChoose: (character: string) => void
}

const most = 8

/** The likeliest characters to come behind the prompt; each may be appended to it. */
export function NextCharacter({ prompt, characters, probabilities, onChoose }: NextCharacterProps) {
  const top = characters.slice(0, most)
  const others = characters.length - top.length
  const rest = probabilities.subarray(most).reduce((sum, p) => sum + p, 0)
  return (
    <ul class="next" aria-label={`Probabilities of the character after "${prompt}"`}>
      {top.map((character, i) => (
        <li key={character}>
          <button
            type="button"
            class="small mono"
            aria-label={`Append ${named(character)}, ${inPercent(probabilities[i])}`}
            onClick={() => onChoose(character)}
          >
            {shown(character)}
          </button>
          <span class="bar-track" aria-hidden="true">
            <span style={{ width: inPercent(probabilities[i]).replace(' ', '') }} />
          </span>
          <span class="bar-value">{inPercent(probabilities[i])}</span>
        </li>
      ))}
      {others > 0 && (
        <li>
          <span class="quiet">{others} others</span>
          <span class="bar-track" aria-hidden="true">
            <span style={{ width: inPercent(rest).replace(' ', '') }} />
          </span>
          <span class="bar-value">{inPercent(rest)}</span>
        </li>
      )}
    </ul>
  )
}
