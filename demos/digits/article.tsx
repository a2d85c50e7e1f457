import { Article, Drawing } from '../../src/ui/demo/article.tsx'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Term } from '../../src/ui/parts/term.tsx'

/** A 3, row by row. */
const three = ['.####.', '....##', '..###.', '....##', '#...##', '.####.']
const pixels = three.flatMap((row, y) =>
  [...row].map((ink, x) => ({ x: 16 + 18 * x, y: 26 + 18 * y, isInk: ink === '#' })),
)
/** Widths of ten bars: which digit it is. */
const bars = [2, 1, 6, 58, 1, 12, 1, 1, 9, 3]

/** What to see in the digits, and why. */
export const DigitsArticle = () => (
  <Article
    title="From ink to a digit"
    drawings={
      <>
        <Drawing
          title="Pixels of a 3 on the left, ten bars on the right, of which the one for 3 is the longest."
          caption="784 numbers go in, one for each pixel’s ink. Ten come out, one for each digit."
          height={160}
        >
          {pixels.map(({ x, y, isInk }) => (
            <rect
              key={`${x} ${y}`}
              data-is={isInk ? 'hued' : 'hollow'}
              style={hueOf(0)}
              stroke-opacity="0.3"
              {...{ x, y }}
              width={17}
              height={17}
            />
          ))}
          <path data-is="line" d="M146 80h60m-8 -5l8 5l-8 5" />
          <text x={175} y={68}>
            256 units
          </text>
          {bars.map((width, digit) => (
            <g key={digit}>
              <text x={244} y={18 + 15 * digit}>
                {digit}
              </text>
              <rect
                data-is="hued"
                style={hueOf(digit === 3 ? 0 : 5)}
                x={256}
                y={9 + 15 * digit}
                {...{ width }}
                height={10}
              />
            </g>
          ))}
        </Drawing>
        <Drawing
          title="Nine pixels, of which the middle column is marked plus and its neighbours minus."
          caption="A filter: ink at + raises its output, ink at − lowers it. This one seeks an upright stroke."
          height={104}
        >
          {Array.from({ length: 9 }, (_, at) => {
            const isUp = at % 3 === 1
            const [x, y] = [132 + 32 * (at % 3), 6 + 32 * Math.floor(at / 3)]
            return (
              <g key={at}>
                <rect
                  data-is={isUp ? 'hued' : 'hollow'}
                  style={hueOf(0)}
                  {...{ x, y }}
                  width={30}
                  height={30}
                />
                <text data-is={isUp ? 'on' : ''} x={x + 15} y={y + 19}>
                  {isUp ? '+' : '−'}
                </text>
              </g>
            )
          })}
        </Drawing>
      </>
    }
  >
    <p>
      A picture of a digit is 28 × 28 pixels. The network gets how much ink each has, and answers
      with ten numbers: how likely it finds each digit. Nobody tells it what a loop or a stroke is.
    </p>
    <p>
      Its first <Term word="layer" /> has 256 units. Each looks at all pixels through a filter,
      which says where ink counts for it and where ink counts against it. Before training, filters
      are noise. Training turns them into strokes and edges, because these make the{' '}
      <Term word="loss" /> smaller.
    </p>
    <p>
      The built-in digits are drawn by the program, so that nothing has to be downloaded: 8,000 to
      learn from and 1,000 <Term word="held out" />. One <Term word="epoch" /> is 125{' '}
      <Term word="step">steps</Term> of 64 digits, and after it at least 90 of 100 new digits are
      right.
    </p>
    <p>
      <strong>To try.</strong> Draw a digit while it trains, and watch the bars. Draw it small or in
      a corner: the page scales and centres it first, as MNIST’s digits are. Look at the worst
      mistakes: often people hesitate, too. Then choose the model cnn. Its filters are only 3 × 3
      pixels and move across the picture, so a stroke is found wherever it is.
    </p>
  </Article>
)
