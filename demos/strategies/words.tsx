import { Term } from '../../src/ui/parts/term.tsx'
import { meta } from './meta.ts'

/** What the page compares, and what to expect of it. */
export function About() {
  return (
    <div class="about">
      <p>
        {meta.sentence} The strategies train one after the other in this tab, each{' '}
        <Term word="rank" /> in a worker. At the same time they would compete for one{' '}
        <Term word="device" />, and their times would mean nothing.
      </p>
      <p>
        <strong>What to expect.</strong> By samples, the curves of 1, 2 and 4 ranks lie on top of
        each other: with the same <Term word="global batch" /> it is the same training, up to
        rounding. By seconds they differ. More ranks are faster where sharing a step saves more time
        than the gradients take to travel: not where all ranks share one device and a step has
        little to compute, as in the first two experiments, but{' '}
        <a href="?experiment=cores">where it computes much and each rank has its own core</a>. Run
        both, and compare the bars below the charts.
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
          <strong>A CPU core each</strong>: a rank computes on one thread of the CPU, so that ranks
          are really separate, as far as this computer has cores.
        </p>
        <p>
          <strong>Devices, simulated</strong>: how long a step would take on devices that share
          nothing. One real device computes a share of the batch, alone, and is timed; the exchange
          is the real code over simulated links. The curve is that of 1 rank, at these times.
        </p>
        <p>
          Several machines are compared on the training page, with{' '}
          <a href="../../?demo=playground">little</a> to compute or with{' '}
          <a href="../../?demo=digits&amp;model=cnn&amp;batchSize=256">much</a>: its chart overlays
          runs, by samples and by seconds too.
        </p>
      </div>
    </section>
  )
}
