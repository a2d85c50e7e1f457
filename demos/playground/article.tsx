import { Article, Drawing, lineThrough } from '../../src/ui/demo/article.tsx'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Term } from '../../src/ui/parts/term.tsx'

const layers = [2, 16, 16, 2]
/** Places of a layer's units. */
const unitsOf = (layer: number) =>
  Array.from({ length: layers[layer] }, (_, unit) => ({
    x: 40 + 93 * layer,
    y: 90 + (unit - (layers[layer] - 1) / 2) * (layer === 0 || layer === 3 ? 30 : 10),
  }))

/** What to see in the playground, and why. */
export const PlaygroundArticle = () => (
  <Article
    title="How a line learns to bend"
    drawings={
      <>
        <Drawing
          title="A network of four layers: 2, 16, 16 and 2 units, each joined to all of the next."
          caption="354 numbers: one for each line, and one for each unit after the first layer."
          height={180}
        >
          {layers.slice(1).map((_, layer) =>
            unitsOf(layer).flatMap((from) =>
              unitsOf(layer + 1).map((to) => (
                <path
                  key={`${from.y} ${to.y}`}
                  data-is="line"
                  stroke-opacity="0.25"
                  d={lineThrough([
                    [from.x, from.y],
                    [to.x, to.y],
                  ])}
                />
              )),
            ),
          )}
          {layers.map((_, layer) =>
            unitsOf(layer).map(({ x, y }) => <circle key={y} data-is="hued" cx={x} cy={y} r={4} />),
          )}
          <text x={40} y={60}>
            place
          </text>
          <text x={319} y={60}>
            class
          </text>
        </Drawing>
        <Drawing
          title="A valley: small steps go down to its bottom, a large one leaps to the other side."
          caption="The loss as a valley. Short steps arrive; a long one lands higher up."
          height={120}
        >
          <path
            data-is="line"
            d={lineThrough(
              Array.from({ length: 41 }, (_, at) => [20 + 8 * at, 104 - (at - 20) ** 2 / 4.2]),
            )}
          />
          {[3, 8, 12, 15, 17].map((at) => (
            <circle
              key={at}
              data-is="hued"
              style={hueOf(0)}
              cx={20 + 8 * at}
              cy={104 - (at - 20) ** 2 / 4.2}
              r={5}
            />
          ))}
          <path data-is="curve" style={hueOf(1)} stroke-dasharray="4 4" d="M44 35Q180 -20 332 18" />
          <circle data-is="hued" style={hueOf(1)} cx={332} cy={18} r={5} />
        </Drawing>
      </>
    }
  >
    <p>
      Every place on the plane is two numbers. The network turns them into two others, which say how
      likely each class is there. The line runs where both are equally likely, and the colours say
      how sure the network is.
    </p>
    <p>
      A unit of the first <Term word="layer" /> can only divide the plane by a straight edge. The
      second one adds such edges up to bent ones, and the last makes the line of these. You find
      each unit’s picture under the plane.
    </p>
    <p>
      At first all 354 <Term word="parameter">parameters</Term> are random. In each{' '}
      <Term word="step" /> the network looks at a <Term word="batch" /> of 96 points, works out the{' '}
      <Term word="gradient" />, and moves a little against it. Of the 720 points, 240 are{' '}
      <Term word="held out" />: only these show whether it found the spirals’ shape.
    </p>
    <p>
      <strong>To try.</strong> Take one layer of 4 units: it is too small for the spirals. Raise the{' '}
      <Term word="learning rate" /> fifty times. Then open a second tab, give each its own sector,
      and switch the exchange off: the tabs disagree about what they have not seen. With the
      exchange on, both have one line, and it is right everywhere.
    </p>
  </Article>
)
