import { Article, Drawing } from '../../src/ui/demo/article.tsx'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Term } from '../../src/ui/parts/term.tsx'

const word = [...'the ta']
/** How likely the next character is, as a picture of the idea. */
const guesses = [
  ['b', 110],
  ['l', 52],
  ['k', 34],
  ['r', 16],
] as const

const size = 15

/** What to see in the text, and why. */
export const TextArticle = () => (
  <Article
    title="Guess the next character, again and again"
    drawings={
      <>
        <Drawing
          title="The characters “the ta”, and four guesses for the next one with bars of different length."
          caption="It never answers with one character, but says how likely each is."
          height={112}
        >
          {word.map((character, at) => (
            <g key={at}>
              <rect data-is="hollow" x={10 + 22 * at} y={44} width={20} height={24} />
              <text x={20 + 22 * at} y={60}>
                {character}
              </text>
            </g>
          ))}
          <path data-is="line" d="M148 56h36m-8 -5l8 5l-8 5" />
          {guesses.map(([character, width], at) => (
            <g key={character}>
              <text x={200} y={24 + 24 * at}>
                {character}
              </text>
              <rect
                data-is="hued"
                style={hueOf(0)}
                x={212}
                y={14 + 24 * at}
                {...{ width }}
                height={13}
              />
            </g>
          ))}
        </Drawing>
        <Drawing
          title="A triangle of squares: each row is a character, and has a square for each character up to it."
          caption="A map of attention: each row looks back, never ahead."
          height={140}
        >
          {Array.from({ length: 8 }, (_, row) =>
            Array.from({ length: row + 1 }, (_, column) => (
              <rect
                key={`${row} ${column}`}
                data-is="hued"
                style={hueOf(0)}
                fill-opacity={1 / (1 + ((row - column) * (1 + ((row * 7) % 3))) / 2)}
                x={120 + size * column}
                y={8 + size * row}
                width={size - 2}
                height={size - 2}
              />
            )),
          )}
        </Drawing>
      </>
    }
  >
    <p>
      This is a small GPT, of the kind that chat programs are, only much smaller: 2{' '}
      <Term word="layer">layers</Term> with 4 heads each. It reads up to 32 characters and says how
      likely each character is to come next. To write, it draws one by these odds, appends it, and
      asks again.
    </p>
    <p>
      At first it draws at random. Then it learns which letters are frequent and where spaces stand,
      then short words, then pieces of the story. Nobody gave it a dictionary: each{' '}
      <Term word="step" /> only makes the characters that did come a little likelier.
    </p>
    <p>
      The number to watch is bits per character: how many yes-or-no answers it still lacks for the
      next one. 2 bits are as good as a guess among 4. It is measured on the last tenth of the text,
      which is <Term word="held out" />.
    </p>
    <p>
      <strong>To try.</strong> Type the beginning of a word: inside a word it is soon sure, after a
      space it is not. Lower the temperature, and it only writes what it is sure of; raise it, and
      it invents. In the maps of <Term word="attention" />, see whether a head looks mostly at the
      character before. Then paste a text of yours.
    </p>
  </Article>
)
