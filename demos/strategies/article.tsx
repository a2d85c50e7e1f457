import { Article, Drawing, lineThrough } from '../../src/ui/demo/article.tsx'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Term } from '../../src/ui/parts/term.tsx'

/** A curve that falls, drawn over this width. */
const falling = (width: number) =>
  lineThrough(
    Array.from({ length: 31 }, (_, at) => [40 + (width * at) / 30, 14 + 70 * (1 - 0.88 ** at)]),
  )

/** Shares of one batch, by strategy. */
const shares = [1, 2, 4]

/** What to see where strategies are compared, and why. */
export const StrategiesArticle = () => (
  <Article
    title="When do more ranks help?"
    drawings={
      <>
        <Drawing
          title="One batch, whole for one rank, in two halves for two, in four quarters for four."
          caption="The same global batch, by 1, 2 and 4 ranks: the same samples in every step."
          height={104}
        >
          {shares.map((ranks, row) =>
            Array.from({ length: ranks }, (_, rank) => (
              <g key={`${ranks} ${rank}`}>
                <rect
                  data-is="hued"
                  style={hueOf(rank)}
                  x={20 + (320 / ranks) * rank}
                  y={6 + 32 * row}
                  width={320 / ranks - 3}
                  height={26}
                />
                <text data-is="on" x={20 + (320 / ranks) * (rank + 0.5)} y={23 + 32 * row}>
                  rank {rank}
                </text>
              </g>
            )),
          )}
        </Drawing>
        <Drawing
          title="Two curves of the loss: by samples they would be one; by seconds one of them takes twice as long."
          caption="Sketch: by samples the curves are one; by seconds the same curve is drawn out."
          height={112}
        >
          <path data-is="line" d="M40 6v90h310" />
          <path data-is="curve" style={hueOf(0)} d={falling(150)} />
          <path data-is="curve" style={hueOf(1)} stroke-dasharray="6 4" d={falling(300)} />
          <text x={18} y={20}>
            loss
          </text>
          <text x={322} y={109}>
            seconds
          </text>
        </Drawing>
      </>
    }
  >
    <p>
      Two <Term word="rank">ranks</Term> that halve a <Term word="batch" /> and average their{' '}
      <Term word="gradient">gradients</Term> take the step that one rank with the whole batch takes:
      the average of the halves is the average of all. So by samples the curves lie on top of each
      other, up to rounding. Four ranks do not learn better, or worse; they learn the same.
    </p>
    <p>
      By seconds it is otherwise. Computing gets shorter with each rank, but now there is an{' '}
      <Term word="all-reduce" /> in every step, which takes its time whatever the batch. Where a
      network is tiny and all ranks share one <Term word="device" />, more ranks are not faster.
      They win where the work of a step takes much longer than its gradients travel, and each rank
      has its own device: with large batches, convolutions, several machines.
    </p>
    <p>
      Both can be seen here. In the third experiment each rank has one core of this computer’s CPU,
      and a step of convolutions has much to compute for few gradients. The bars show what a step
      spends on computing and on the exchange, as measured, and the sentence below compares them.
    </p>
    <p>
      <strong>Batch × 2</strong> and <strong>× 4</strong> are another training: fewer steps, each
      over more samples. <strong>No exchange</strong> is two trainings that know half as much each.
    </p>
    <p>
      <strong>To try.</strong> Run the first experiment, then the third one: how long are their
      bars, and of what? Add the strategy without an exchange, and compare the curves. Set another
      seed, to see how much is chance.
    </p>
  </Article>
)
