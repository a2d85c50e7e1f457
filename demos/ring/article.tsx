import { Article, Drawing } from '../../src/ui/demo/article.tsx'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Term } from '../../src/ui/parts/term.tsx'

const ranks = 4
const placeOf = (rank: number) => {
  const angle = (2 * Math.PI * rank) / ranks - Math.PI / 2
  return { x: 180 + 62 * Math.cos(angle), y: 84 + 62 * Math.sin(angle) }
}
/** Bytes that a rank sends, in arrays. */
const sentBy = (count: number) => (2 * (count - 1)) / count
const counts = [2, 4, 8, 16]

/** What to see in the ring, and why. */
export const RingArticle = () => (
  <Article
    title="A sum that goes around"
    drawings={
      <>
        <Drawing
          title="Four ranks on a ring, each sending to the next one."
          caption="Each rank sends to the next one only, so all links carry data at the same time."
          height={168}
        >
          <circle data-is="line" cx={180} cy={84} r={62} />
          {Array.from({ length: ranks }, (_, rank) => {
            const { x, y } = placeOf(rank)
            const turn = 90 * rank + 45
            return (
              <g key={rank}>
                <path d="M-5 -67l9 5l-9 5z" transform={`translate(180 84) rotate(${turn})`} />
                <circle data-is="hued" style={hueOf(rank)} cx={x} cy={y} r={17} />
                <text data-is="on" {...{ x }} y={y + 4}>
                  {rank}
                </text>
              </g>
            )
          })}
        </Drawing>
        <Drawing
          title="Bars of what each rank sends: 1 array for 2 ranks, 1.5 for 4, 1.75 for 8, 1.875 for 16."
          caption="What each rank sends, in lengths of its array: never 2, however many they are."
          height={112}
        >
          {counts.map((count, at) => (
            <g key={count}>
              <text x={40} y={22 + 25 * at}>
                {count} ranks
              </text>
              <rect
                data-is="hued"
                style={hueOf(0)}
                x={80}
                y={11 + 25 * at}
                width={110 * sentBy(count)}
                height={15}
              />
              <text data-is="on" x={58 + 110 * sentBy(count)} y={23 + 25 * at}>
                {sentBy(count)}
              </text>
            </g>
          ))}
          <path data-is="line" stroke-dasharray="3 3" d="M300 4v104" />
        </Drawing>
      </>
    }
  >
    <p>
      Ranks that train together need the sum of their <Term word="gradient">gradients</Term>, all of
      them, in every step. If all sent theirs to one <Term word="rank" />, its link would be full
      while the others wait. In a ring every link carries an equal part.
    </p>
    <p>
      The array is cut into as many <Term word="chunk">chunks</Term> as there are ranks. In the
      first half, the <Term word="reduce-scatter" />, each chunk goes around once, and each rank
      adds its own numbers to it: filled squares. Then each rank holds one finished chunk. In the
      second half, the <Term word="all-gather" />, the finished chunks go around: outlined circles,
      which are copied.
    </p>
    <p>
      So N ranks take 2 (N − 1) steps. More ranks hardly send more bytes, since chunks get smaller;
      but each message waits for the one before, and each costs the link’s <Term word="latency" />.
      That is why short arrays on slow links go directly from each to each.
    </p>
    <p>
      <strong>To try.</strong> Press Play, and read the sentence beside the clock: it names each
      step, and who sends which chunk to whom. Compare 4 ranks with 16. Add loss: one lost message
      delays everybody. Put the ranks on two machines and choose <em>hierarchical</em>. Flip one
      bit, and see that the result notices: each chunk is added in one fixed order, so all ranks end
      with the same bits.
    </p>
  </Article>
)
