import { render } from 'preact'
import './ui/theme/theme.css'
import { DemoCards } from '../demos/first-screen/demo-cards.tsx'
import { PageFoot } from './ui/parts/page-foot.tsx'
import { PageTop } from './ui/parts/page-top.tsx'

render(
  <div class="page">
    <PageTop home="../" tagline="Demos" />
    <main>
      <h2 class="display">What tabs can learn</h2>
      <DemoCards home="../" />
    </main>
    <PageFoot home="../" />
  </div>,
  document.getElementById('app')!,
)
