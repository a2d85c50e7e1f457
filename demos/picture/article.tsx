import { Article, Drawing, lineThrough } from '../../src/ui/demo/article.tsx'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Term } from '../../src/ui/parts/term.tsx'

const wave = (cycles: number, middle: number) =>
  lineThrough(
    Array.from({ length: 121 }, (_, at) => [
      40 + (280 * at) / 120,
      middle - 13 * Math.sin((2 * Math.PI * cycles * at) / 120),
    ]),
  )

/** What to see in the picture, and why. */
export const PictureArticle = () => (
  <Article
    title="A picture that is a function"
    drawings={
      <>
        <Drawing
          title="Three waves across the picture, from slow to fast."
          caption="Of a place the network gets 64 such waves, at all angles. Slow ones carry shapes, fast ones edges."
          height={128}
        >
          {[1, 3, 8].map((cycles, at) => (
            <path key={cycles} data-is="curve" style={hueOf(0)} d={wave(cycles, 24 + 40 * at)} />
          ))}
        </Drawing>
        <Drawing
          title="A picture in three bands, one for each rank."
          caption="Own band: each rank learns its part of the picture. The gradients join them."
          height={126}
        >
          {[0, 1, 2].map((rank) => (
            <g key={rank}>
              <rect
                data-is="hued"
                style={hueOf(rank)}
                x={100}
                y={6 + 38 * rank}
                width={160}
                height={36}
              />
              <text data-is="on" x={180} y={28 + 38 * rank}>
                rank {rank}
              </text>
            </g>
          ))}
        </Drawing>
      </>
    }
  >
    <p>
      This network has no list of pixels. Asked for a place, it answers with a colour, and the
      picture you see is that question, asked once for every pixel. All it knows is in about 8,500{' '}
      <Term word="parameter">parameters</Term>, so it also has a colour between the pixels: choose
      “twice as fine”.
    </p>
    <p>
      Each <Term word="step" /> compares 512 pixels with the original. Large shapes come first,
      because they are right for many pixels at once. Edges come late, and the picture of the error
      stays bright there the longest.
    </p>
    <p>
      One pixel in ten is <Term word="held out" />. If the network is right there too, it did not
      only learn the others by heart.
    </p>
    <p>
      <strong>To try.</strong> Give it x and y alone instead of waves: it then bends slowly, and the
      edges stay blurred. Train on a picture of your own. With two tabs, give each its own band and
      switch the exchange off: each paints its band, and makes the rest up. Switch it on, and every{' '}
      <Term word="rank" /> has the whole picture, though it still sees only its own pixels. What
      travels between them are <Term word="gradient">gradients</Term>.
    </p>
  </Article>
)
