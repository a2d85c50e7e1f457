import { useEffect, useState } from 'preact/hooks'
import { firstDigits } from './first-digits.ts'
import { inkOn, Tile } from './images.tsx'

const count = 20
const side = 28
const ink = inkOn(255)

/** The first of the drawn digits that a run learns from, with their labels, before there is one. */
export function Examples() {
  const [digits, setDigits] = useState<Awaited<ReturnType<typeof firstDigits>> | null>(null)
  useEffect(() => {
    let isWanted = true
    firstDigits(count).then(
      (found) => isWanted && setDigits(found),
      // It is a look ahead: the run says what is wrong.
      () => undefined,
    )
    return () => {
      isWanted = false
    }
  }, [])
  const pixels = side * side
  return (
    <div>
      <h3>What it learns from</h3>
      <ul class="examples" aria-label="Some of the training digits">
        {Array.from({ length: count }, (_, i) => (
          <li key={i}>
            {digits && (
              <>
                <Tile
                  values={digits.images.subarray(i * pixels, (i + 1) * pixels)}
                  height={side}
                  width={side}
                  scale={ink}
                  label={`A ${digits.labels[i]}`}
                />
                <span aria-hidden="true">{digits.labels[i]}</span>
              </>
            )}
          </li>
        ))}
      </ul>
      <p class="quiet">The first {count} of 8,000, each with its label.</p>
    </div>
  )
}
