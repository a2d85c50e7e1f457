import { Term } from '../../src/ui/parts/term.tsx'
import { meta } from './meta.ts'

/** What the page compares, and what to expect of it. */
export function About() {
  return (
    <div class="about">
      <p>
        {meta.sentence} The strategies train one after the other in this tab, each{' '}
        <Term word="rank" /> in a worker with its own GPU device. At the same time they would
        compete for one GPU, and their times would mean nothing.
      </p>
      <p>
        <strong>What to expect.</strong> By samples, the curves of 1, 2 and 4 ranks lie on top of
        each other: with the same <Term word="global batch" /> it is the same training, up to
        rounding. By seconds they differ, and more ranks are not faster here, because ranks on one
        machine share its GPU. Several machines are faster only where sharing a step saves more time
        than the gradients take to travel: with a much larger model than these, or a much larger
        batch.
      </p>
    </div>
  )
}

/** What each strategy is. */
export function Explained() {
  return (
    <section class="panel" aria-labelledby="explained-title">
      <header class="panel-head">
        <h2 id="explained-title">What the strategies are</h2>
      </header>
      <div class="explained">
        <p>
          <strong>1, 2, 4 ranks</strong> split the same global batch into as many shares, sum their{' '}
          <Term word="gradient">gradients</Term> over ports between the workers, and take the same
          step.
        </p>
        <p>
          <strong>Batch × 2, × 4</strong> keep each rank's share as large as one rank's whole batch,
          as people do to use more GPUs. That takes fewer steps over as many samples, so it is a
          different training: 300 and 200 steps instead of 500 with the defaults, as the last batch
          of an <Term word="epoch" /> is short. The <Term word="learning rate" /> stays.
        </p>
        <p>
          <strong>No exchange</strong>: two ranks take the shares of each batch that exchanging
          ranks would, and each trains its own model. The line is the mean of their losses; each
          model has seen half of the samples.
        </p>
        <p>
          Several machines are compared on the <a href="../../?demo=playground">training page</a>:
          its chart overlays runs, by samples and by seconds too.
        </p>
      </div>
    </section>
  )
}
