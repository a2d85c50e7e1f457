import { useState } from 'preact/hooks'
import { inPercent, named, shown } from './characters.ts'

interface NextCharacterProps {
  prompt: string
  characters: readonly string[]
  probabilities: Float32Array
  onChoose: (character: string) => void
}

const max = 8

/** The likeliest characters to come behind the prompt; each may be appended to it. */
export function NextCharacter({ prompt, characters, probabilities, onChoose }: NextCharacterProps) {
  // They keep their places while a person is about to press one, until the prompt changes.
  const [held, setHeld] = useState<{ prompt: string; top: readonly string[] } | null>(null)
  const top = held?.prompt === prompt ? held.top : characters.slice(0, max)
  const hold = () => setHeld({ prompt, top })
  const letGo = () => setHeld(null)
  const of = (character: string) => probabilities[characters.indexOf(character)] ?? 0
  const others = characters.length - top.length
  const rest = Math.max(0, 1 - top.reduce((sum, character) => sum + of(character), 0))
  return (
    <ul
      class="next"
      onPointerEnter={hold}
      onPointerMove={held?.prompt === prompt ? undefined : hold}
      onPointerLeave={letGo}
      onFocusIn={hold}
      onFocusOut={letGo}
      aria-label={`Probabilities of the character after "${prompt}"`}
    >
      {top.map((character) => (
        <li key={character}>
          <button
            type="button"
            class="small mono"
            aria-label={`Append ${named(character)}, ${inPercent(of(character))}`}
            onClick={() => onChoose(character)}
          >
            {shown(character)}
          </button>
          <span class="bar-track" aria-hidden="true">
            <span style={{ width: inPercent(of(character)).replace(' ', '') }} />
          </span>
          <span class="bar-value">{inPercent(of(character))}</span>
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
