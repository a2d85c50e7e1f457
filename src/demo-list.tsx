import { render } from 'preact'
import './ui/theme/theme.css'
import { DemoCards } from '../demos/first-screen/demo-cards.tsx'
import { PageTop } from './ui/parts/page-top.tsx'

render(
  <div class="page">
    <PageTop tagline="Demos" />
    <main>
      <DemoCards base="./" />
    </main>
    <footer class="foot">
      <a href="../">The training page</a>
    </footer>
  </div>,
  document.getElementById('app')!,
)
